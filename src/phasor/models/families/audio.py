"""Audio and speech towers, one row each: config class with its defaults, class that rotates, what is unusual.

Everything here was read in transformers 5.23 (``models/*/configuration_*.py`` and ``modeling_*.py``).
"""

from ..reading.custom_parser import Line
from ..reading.keys import Keys, agreed
from ..reading.layers import LISTED
from ..reading.model_row import PartOf, Row
from ..reading.text_row import Facts, Names, Rope
from ..weights import Rows, Weights
from .weight_names import BOTH_STACKS, DECODER, ENCODER

BASE = 10_000.0
HALF = Rope(BASE, {"partial_rotary_factor": 0.5})
FOUR_FIFTHS = Rope(BASE, {"partial_rotary_factor": 0.8})
WHISPER = {
    "d_model": "hidden_size", "encoder_layers": "num_hidden_layers", "encoder_attention_heads": "num_attention_heads",
}  # fmt: skip
BOTH = ("its encoder and its decoder have as many of these layers each",)
HEAD_INDEX = ("the position is the index of the head, the same for every token: rotate with the heads as the sequence",)
CROSS = ("cross-attention does not rotate",)
DROPPED = ("in training its cosines and sines are dropped out (dropout_positions)",)


def own_width(facts: Facts, keys: Keys) -> Facts:
    """The code of Dots 3's encoder divides the width by the heads; head_dim may only say the same."""
    width = (keys.size("hidden_size") or 1280) // (keys.size("num_attention_heads") or 20)
    agreed([("hidden_size / num_attention_heads", width), *keys.found("head_dim")])
    keys.explain("no effect: the width of heads is hidden_size / num_attention_heads", "head_dim")
    return facts


# fmt: off
ROWS: dict[str, Row] = {
    "deepseek_ocr2_encoder": Line("DeepseekOcr2VisionEncoderConfig", BASE, (4096, 32, 32, 32, None, 32_768),
        code="DeepseekOcr2VisionRotaryEmbedding", layers=LISTED),
    "dia_decoder": Line("DiaDecoderConfig", BASE, (2048, 16, 4, 18, 128, 3072), code="DiaRotaryEmbedding",
        notes=CROSS, weights=Weights(attention=("layers.{}.self_attention",))),
    "dia_encoder": Line("DiaEncoderConfig", BASE, (1024, 16, 16, 12, 128, 1024), code="DiaRotaryEmbedding",
        weights=Weights(attention=("layers.{}.self_attention",))),
    "dots3_note_audio_encoder": Line("Dots3NoteAudioConfig", HALF, (1280, 20, None, 32, None, 6000),
        code="Dots3NoteAudioRotaryEmbedding", renamed={**WHISPER, "max_source_positions": "max_position_embeddings"},
        nested="whisper_config", partial=0.5, names=Names(head_dim=()), before=own_width),
    "glmasr_encoder": Line("GlmAsrEncoderConfig", HALF, (1280, 20, None, 32, None, 1500),
        code="GlmAsrRotaryEmbedding", partial=0.5),
    "gradium_phonon_tts": Line("GradiumPhononTTSConfig", BASE, (768, 12, None, 6, None, 8192),
        code="GradiumPhononTTSRotaryEmbedding"),
    "lasr_encoder": Line("LasrEncoderConfig", BASE, (512, 8, None, 17, None, 10_000),
        code="LasrEncoderRotaryEmbedding", notes=DROPPED),
    "mimi": Line("MimiConfig", BASE, (512, 8, 8, 8, None, 8000), code="MimiRotaryEmbedding", notes=BOTH,
        weights=BOTH_STACKS),
    "mimi_decoder": Line("MimiDecoderConfig", BASE, (512, 8, 8, 8, None, 8000), code="MimiRotaryEmbedding",
        weights=DECODER),
    "mimi_encoder": Line("MimiEncoderConfig", BASE, (512, 8, 8, 8, None, 8000), code="MimiRotaryEmbedding",
        weights=ENCODER),
    "moonshine_streaming": Line("MoonshineStreamingConfig", FOUR_FIFTHS, (320, 8, None, 6, None, 4096),
        shares=(), code="MoonshineStreamingRotaryEmbedding", partial=1.0, interleaved=True, notes=CROSS,
            weights=Weights(attention=("decoder.layers.{}.self_attn",))),
    "nemotron3_5_transcribe_asr_audio": Line("Nemotron3_5TranscribeAsrAudioConfig", HALF,
        (1280, 10, None, 32, None, 5000), code="Nemotron3_5TranscribeRotaryEmbedding", partial=1.0),
    "nemotron3_5_transcribe_word_timestamp": Line("Nemotron3_5TranscribeWordTimestampConfig", HALF,
        (1280, 16, None, 2, None, 5000), code="Nemotron3_5TranscribeRotaryEmbedding", partial=1.0),
    "nemotron3_diarization_audio": Line("Nemotron3DiarizationAudioConfig", BASE, (512, 8, None, 31, None, 5000),
        code="Nemotron3DiarizationRotaryEmbedding", partial=1.0),
    "neucodec": Line("NeuCodecConfig", BASE, (1024, 16, 16, 12, 64, 4096), code="NeuCodecRotaryEmbedding",
        notes=HEAD_INDEX, parts={"semantic_model_config": PartOf("wav2vec2-bert")},
            weights=Weights(attention=("acoustic_decoder.layers.{}.self_attn",))),
    "pe_audio_encoder": Line("PeAudioEncoderConfig", 20_000.0, (1792, 14, None, 6, 128, 10_000),
        code="PeAudioEncoderRotaryEmbedding", interleaved=True),
    "pe_audio_video_encoder": Line("PeAudioVideoEncoderConfig", 20_000.0, (1792, 14, None, 6, 128, 10_000),
        code="PeAudioVideoEncoderRotaryEmbedding", interleaved=True,
        parts={"audio_config": PartOf("pe_audio_encoder"), "video_config": PartOf("pe_video_encoder")}),
    "pe_video_encoder": Line("PeVideoEncoderConfig", 20_000.0, (1792, 14, None, 6, 128, 10_000),
        code="PeVideoEncoderRotaryEmbedding", interleaved=True),
    "pocket_tts": Line("PocketTTSConfig", BASE, (1024, 16, None, 6, None, 8192), code="PocketTTSRotaryEmbedding"),
    "pocket_tts_audio_tokenizer": Line("PocketTTSAudioTokenizerConfig", BASE, (512, 8, 8, 2, None, 8000),
        code="PocketTTSAudioTokenizerRotaryEmbedding", notes=BOTH, weights=BOTH_STACKS),
    "pocket_tts_audio_tokenizer_decoder": Line("PocketTTSAudioTokenizerDecoderConfig", BASE,
        (512, 8, 8, 2, None, 8000), code="PocketTTSAudioTokenizerRotaryEmbedding", weights=DECODER),
    "pocket_tts_audio_tokenizer_encoder": Line("PocketTTSAudioTokenizerEncoderConfig", BASE,
        (512, 8, 8, 2, None, 8000), code="PocketTTSAudioTokenizerRotaryEmbedding", weights=ENCODER),
    "qwen2_5_omni_dit": Line("Qwen2_5OmniDiTConfig", BASE, (1024, 16, None, 22, 64, 32_768),
        code="Qwen2_5OmniDiTRotaryEmbedding", interleaved=True, permuted=True, heads_that_turn=1,
            weights=Weights(attention=("transformer_blocks.{}.attn",), rows=(Rows("to_q", "q"), Rows("to_k", "k")))),
    "qwen3_omni_moe_code2wav": Line("Qwen3OmniMoeCode2WavConfig", BASE, (1024, 16, 16, 8, None, 8000),
        code="Qwen3OmniMoeRotaryEmbedding"),
    "voxtral_realtime_encoder": Line("VoxtralRealtimeEncoderConfig", BASE, (1280, 32, None, 32, 64, 1500),
        code="VoxtralRealtimeRotaryEmbedding", renamed=WHISPER),
    "xcodec2": Line("Xcodec2Config", BASE, (1024, 16, 16, 12, 64, 4096), code="Xcodec2RotaryEmbedding",
        notes=HEAD_INDEX, parts={"semantic_model_config": PartOf("wav2vec2-bert")},
            weights=Weights(attention=("acoustic_decoder.layers.{}.self_attn",))),
}
# fmt: on
