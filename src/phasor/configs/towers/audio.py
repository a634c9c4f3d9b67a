"""Audio and speech towers, one line each: config class with its defaults, class that rotates, what is unusual.

Everything here was read in transformers 5.23 (``models/*/configuration_*.py`` and ``modeling_*.py``).
"""

from ..family import Family, Rope
from .line import Line

BASE, HALF = 10_000.0, {"rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
FOUR_FIFTHS: Rope = {"rope_theta": 10_000.0, "partial_rotary_factor": 0.8}
WHISPER = {
    "d_model": "hidden_size", "encoder_layers": "num_hidden_layers", "encoder_attention_heads": "num_attention_heads",
}  # fmt: skip
BOTH = ("its encoder and its decoder have as many of these layers each",)
HEAD_INDEX = ("the position is the index of the head, the same for every token: rotate with the heads as the sequence",)
CROSS = ("cross-attention does not rotate",)
DROPPED = ("in training its cosines and sines are dropped out (dropout_positions)",)
POCKET = "PocketTTSAudioTokenizer"

# fmt: off
AUDIO: dict[str, Line] = {
    "deepseek_ocr2_encoder": Line(Family("DeepseekOcr2VisionEncoderConfig", BASE, (4096, 32, 32, 32, None, 32_768)),
        "DeepseekOcr2VisionRotaryEmbedding"),
    "dia_decoder": Line(Family("DiaDecoderConfig", BASE, (2048, 16, 4, 18, 128, 3072)), "DiaRotaryEmbedding",
        notes=CROSS),
    "dia_encoder": Line(Family("DiaEncoderConfig", BASE, (1024, 16, 16, 12, 128, 1024)), "DiaRotaryEmbedding"),
    "dots3_note_audio_encoder": Line(Family("Dots3NoteAudioConfig", HALF, (1280, 20, None, 32, None, 6000),
        partial=0.5), "Dots3NoteAudioRotaryEmbedding", {**WHISPER, "max_source_positions": "max_position_embeddings"},
        nested="whisper_config"),
    "glmasr_encoder": Line(Family("GlmAsrEncoderConfig", HALF, (1280, 20, None, 32, None, 1500), partial=0.5),
        "GlmAsrRotaryEmbedding"),
    "gradium_phonon_tts": Line(Family("GradiumPhononTTSConfig", BASE, (768, 12, None, 6, None, 8192)),
        "GradiumPhononTTSRotaryEmbedding"),
    "lasr_encoder": Line(Family("LasrEncoderConfig", BASE, (512, 8, None, 17, None, 10_000)),
        "LasrEncoderRotaryEmbedding", notes=DROPPED),
    "mimi": Line(Family("MimiConfig", BASE, (512, 8, 8, 8, None, 8000)), "MimiRotaryEmbedding", notes=BOTH),
    "mimi_decoder": Line(Family("MimiDecoderConfig", BASE, (512, 8, 8, 8, None, 8000)), "MimiRotaryEmbedding"),
    "mimi_encoder": Line(Family("MimiEncoderConfig", BASE, (512, 8, 8, 8, None, 8000)), "MimiRotaryEmbedding"),
    "moonshine_streaming": Line(Family("MoonshineStreamingConfig", FOUR_FIFTHS, (320, 8, None, 6, None, 4096),
        partial=0.8, interleaved=True), "MoonshineStreamingRotaryEmbedding", notes=CROSS),
    "nemotron3_5_transcribe_asr_audio": Line(Family("Nemotron3_5TranscribeAsrAudioConfig", HALF,
        (1280, 10, None, 32, None, 5000), partial=0.5), "Nemotron3_5TranscribeRotaryEmbedding"),
    "nemotron3_5_transcribe_word_timestamp": Line(Family("Nemotron3_5TranscribeWordTimestampConfig", HALF,
        (1280, 16, None, 2, None, 5000), partial=0.5), "Nemotron3_5TranscribeRotaryEmbedding"),
    "nemotron3_diarization_audio": Line(Family("Nemotron3DiarizationAudioConfig", BASE,
        (512, 8, None, 31, None, 5000), partial=1.0), "Nemotron3DiarizationRotaryEmbedding"),
    "neucodec": Line(Family("NeuCodecConfig", BASE, (1024, 16, 16, 12, 64, 4096)), "NeuCodecRotaryEmbedding",
        notes=HEAD_INDEX),
    "pe_audio_encoder": Line(Family("PeAudioEncoderConfig", 20_000.0, (1792, 14, None, 6, 128, 10_000),
        interleaved=True), "PeAudioEncoderRotaryEmbedding"),
    "pe_audio_video_encoder": Line(Family("PeAudioVideoEncoderConfig", 20_000.0, (1792, 14, None, 6, 128, 10_000),
        interleaved=True), "PeAudioVideoEncoderRotaryEmbedding"),
    "pe_video_encoder": Line(Family("PeVideoEncoderConfig", 20_000.0, (1792, 14, None, 6, 128, 10_000),
        interleaved=True), "PeVideoEncoderRotaryEmbedding"),
    "pocket_tts": Line(Family("PocketTTSConfig", BASE, (1024, 16, None, 6, None, 8192)), "PocketTTSRotaryEmbedding"),
    "pocket_tts_audio_tokenizer": Line(Family(f"{POCKET}Config", BASE, (512, 8, 8, 2, None, 8000)),
        f"{POCKET}RotaryEmbedding", notes=BOTH),
    "pocket_tts_audio_tokenizer_decoder": Line(Family(f"{POCKET}DecoderConfig", BASE, (512, 8, 8, 2, None, 8000)),
        f"{POCKET}RotaryEmbedding"),
    "pocket_tts_audio_tokenizer_encoder": Line(Family(f"{POCKET}EncoderConfig", BASE, (512, 8, 8, 2, None, 8000)),
        f"{POCKET}RotaryEmbedding"),
    "qwen2_5_omni_dit": Line(Family("Qwen2_5OmniDiTConfig", BASE, (1024, 16, None, 22, 64, 32_768), interleaved=True),
        "Qwen2_5OmniDiTRotaryEmbedding", permuted=True, heads=1),
    "qwen3_omni_moe_code2wav": Line(Family("Qwen3OmniMoeCode2WavConfig", BASE, (1024, 16, 16, 8, None, 8000)),
        "Qwen3OmniMoeRotaryEmbedding"),
    "voxtral_realtime_encoder": Line(Family("VoxtralRealtimeEncoderConfig", BASE, (1280, 32, None, 32, 64, 1500)),
        "VoxtralRealtimeRotaryEmbedding", WHISPER),
    "xcodec2": Line(Family("Xcodec2Config", BASE, (1024, 16, 16, 12, 64, 4096)), "Xcodec2RotaryEmbedding",
        notes=HEAD_INDEX),
}
# fmt: on
