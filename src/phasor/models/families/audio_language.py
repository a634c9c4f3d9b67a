"""Language models of speech and sound."""

from ..reading.model_row import PartOf, Row
from ..reading.non_rotary import Frame
from ..reading.text import Text
from ..reading.text_row import Rope
from ..weights import Weights
from .weight_names import LINEAR

HIGGS_AUDIO_V2 = Rope(
    500_000.0,
    {
        "rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 1024, "low_freq_factor": 0.125,
        "high_freq_factor": 0.5,
    },
    bare=10_000.0,
)  # fmt: skip

# fmt: off
ROWS: dict[str, Row] = {
    "audioflamingo3": Frame(parts={"text_config": PartOf("qwen2")}),
    "csm": Text("CsmConfig", 500_000.0, (2048, 32, 8, 16, None, 2048),
        parts={"codec_config": PartOf("mimi"), "depth_decoder_config": PartOf("csm_depth_decoder_model")},
            weights=Weights(attention=("backbone_model.layers.{}.self_attn",))),
    "csm_depth_decoder_model": Text("CsmDepthDecoderConfig", 500_000.0, (1024, 8, 2, 4, None, 33)),
    "higgs_audio_v2": Text("HiggsAudioV2Config", HIGGS_AUDIO_V2, (3072, 24, 8, 28, 128, 2048)),
    "kyutai_speech_to_text": Text("KyutaiSpeechToTextConfig", 10_000.0, (2048, 32, None, 48, None, 750),
        parts={"codec_config": PartOf("mimi")}, weights=Weights(rows=LINEAR)),
    "moshi": Text("MoshiConfig", 10_000.0, (4096, 32, None, 32, None, 3000),
        parts={"audio_encoder_config": PartOf("mimi")}, weights=Weights(rows=LINEAR)),
    "moss_transcribe_diarize": Frame(parts={"text_config": PartOf("qwen3")}),
    "nemo_speechlm": Frame(parts={"word_timestamp_config": PartOf("nemotron3_5_transcribe_word_timestamp")}),
    "nemotron3_5_transcribe_audio": Frame(parts={"asr_config": PartOf("nemotron3_5_transcribe_asr_audio")}),
    "vibevoice": Frame(parts={"text_config": PartOf("qwen2")}),
    "vibevoice_asr": Frame(parts={"text_config": PartOf("qwen2")}),
}
# fmt: on
