"""What looks at models, files and other code: patch, doctor, golden vectors, ONNX, inspect, checkpoints."""
