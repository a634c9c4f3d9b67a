"""Language models and towers of audio and speech: config class with its defaults, class that rotates, what is unusual.

The towers were read in transformers 5.23 (``models/*/configuration_*.py`` and ``modeling_*.py``).
"""

from ..reading.keys import Keys, agreed
from ..reading.layers import LISTED
from ..reading.row import CompositeModel, PartOf, Row, always, with_text
from ..reading.text import TextModel
from ..reading.text_row import Names, Rope, TextRow
from ..reading.tower import SequenceTower
from ..weights import Rows, Weights
from .weight_names import BOTH_STACKS, DECODER, ENCODER, LINEAR

HIGGS_AUDIO_V2 = Rope(
    500_000.0,
    {
        "rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 1024, "low_freq_factor": 0.125,
        "high_freq_factor": 0.5,
    },
    bare=10_000.0,
)  # fmt: skip


HALF = Rope(10_000.0, {"partial_rotary_factor": 0.5})
FOUR_FIFTHS = Rope(10_000.0, {"partial_rotary_factor": 0.8})
WHISPER = {
    "d_model": "hidden_size", "encoder_layers": "num_hidden_layers", "encoder_attention_heads": "num_attention_heads",
}  # fmt: skip
BOTH = ("its encoder and its decoder have as many of these layers each",)
HEAD_INDEX = ("the position is the index of the head, the same for every token: rotate with the heads as the sequence",)
CROSS = ("cross-attention does not rotate",)
DROPPED = ("in training its cosines and sines are dropped out (dropout_positions)",)


def own_width(row: TextRow, keys: Keys) -> TextRow:
    """The code of Dots 3's encoder divides the width by the heads; head_dim may only say the same."""
    width = (keys.size("hidden_size") or 1280) // (keys.size("num_attention_heads") or 20)
    agreed([("hidden_size / num_attention_heads", width), *keys.entries("head_dim")])
    keys.explain("no effect: the width of heads is hidden_size / num_attention_heads", "head_dim")
    return row


# fmt: off
ROWS: dict[str, Row] = {
    **with_text("qwen2", "audioflamingo3", "vibevoice", "vibevoice_asr"),
    **with_text("qwen3", "moss_transcribe_diarize"),
    "deepseek_ocr2_encoder": SequenceTower("DeepseekOcr2VisionEncoderConfig", code="DeepseekOcr2VisionRotaryEmbedding",
        base=10_000.0, hidden=4096, heads=32, kv_heads=32, layers=32, length=32_768, layer_types=LISTED),
    "dia_decoder": SequenceTower("DiaDecoderConfig", code="DiaRotaryEmbedding", base=10_000.0, hidden=2048, heads=16,
        kv_heads=4, layers=18, head_dim=128, length=3072, notes=CROSS,
        weights=Weights(attention=("layers.{}.self_attention",))),
    "dia_encoder": SequenceTower("DiaEncoderConfig", code="DiaRotaryEmbedding", base=10_000.0, hidden=1024, heads=16,
        kv_heads=16, layers=12, head_dim=128, length=1024, weights=Weights(attention=("layers.{}.self_attention",))),
    "dots3_note_audio_encoder": SequenceTower("Dots3NoteAudioConfig", code="Dots3NoteAudioRotaryEmbedding", rope=HALF,
        hidden=1280, heads=20, layers=32, length=6000, renamed={**WHISPER,
        "max_source_positions": "max_position_embeddings"}, nested="whisper_config", partial=0.5,
        names=Names(head_dim=()), before=own_width),
    "glmasr_encoder": SequenceTower("GlmAsrEncoderConfig", code="GlmAsrRotaryEmbedding", rope=HALF, hidden=1280,
        heads=20, layers=32, length=1500, partial=0.5),
    "gradium_phonon_tts": SequenceTower("GradiumPhononTTSConfig", code="GradiumPhononTTSRotaryEmbedding",
        base=10_000.0, hidden=768, heads=12, layers=6, length=8192),
    "lasr_encoder": SequenceTower("LasrEncoderConfig", code="LasrEncoderRotaryEmbedding", base=10_000.0, hidden=512,
        heads=8, layers=17, length=10_000, notes=DROPPED),
    "mimi": SequenceTower("MimiConfig", code="MimiRotaryEmbedding", base=10_000.0, hidden=512, heads=8, kv_heads=8,
        layers=8, length=8000, notes=BOTH, weights=BOTH_STACKS),
    "mimi_decoder": SequenceTower("MimiDecoderConfig", code="MimiRotaryEmbedding", base=10_000.0, hidden=512, heads=8,
        kv_heads=8, layers=8, length=8000, weights=DECODER),
    "mimi_encoder": SequenceTower("MimiEncoderConfig", code="MimiRotaryEmbedding", base=10_000.0, hidden=512, heads=8,
        kv_heads=8, layers=8, length=8000, weights=ENCODER),
    "moonshine_streaming": SequenceTower("MoonshineStreamingConfig", code="MoonshineStreamingRotaryEmbedding",
        rope=FOUR_FIFTHS, hidden=320, heads=8, layers=6, length=4096, shares=(), partial=1.0, interleaved=True,
        notes=CROSS, weights=Weights(attention=("decoder.layers.{}.self_attn",))),
    "nemotron3_5_transcribe_asr_audio": SequenceTower("Nemotron3_5TranscribeAsrAudioConfig",
        code="Nemotron3_5TranscribeRotaryEmbedding", rope=HALF, hidden=1280, heads=10, layers=32, length=5000,
        partial=1.0),
    "nemotron3_5_transcribe_word_timestamp": SequenceTower("Nemotron3_5TranscribeWordTimestampConfig",
        code="Nemotron3_5TranscribeRotaryEmbedding", rope=HALF, hidden=1280, heads=16, layers=2, length=5000,
        partial=1.0),
    "nemotron3_diarization": CompositeModel(parts={"audio_config": always("nemotron3_diarization_audio")}),
    "nemotron3_diarization_audio": SequenceTower("Nemotron3DiarizationAudioConfig",
        code="Nemotron3DiarizationRotaryEmbedding", base=10_000.0, hidden=512, heads=8, layers=31, length=5000,
        partial=1.0),
    "neucodec": SequenceTower("NeuCodecConfig", code="NeuCodecRotaryEmbedding", base=10_000.0, hidden=1024, heads=16,
        kv_heads=16, layers=12, head_dim=64, length=4096, notes=HEAD_INDEX,
        parts={"semantic_model_config": PartOf("wav2vec2-bert")},
        weights=Weights(attention=("acoustic_decoder.layers.{}.self_attn",))),
    "pe_audio_encoder": SequenceTower("PeAudioEncoderConfig", code="PeAudioEncoderRotaryEmbedding", base=20_000.0,
        hidden=1792, heads=14, layers=6, head_dim=128, length=10_000, interleaved=True),
    "pe_audio_video_encoder": SequenceTower("PeAudioVideoEncoderConfig", code="PeAudioVideoEncoderRotaryEmbedding",
        base=20_000.0, hidden=1792, heads=14, layers=6, head_dim=128, length=10_000, interleaved=True,
        parts={"audio_config": PartOf("pe_audio_encoder"), "video_config": PartOf("pe_video_encoder")}),
    "pe_video_encoder": SequenceTower("PeVideoEncoderConfig", code="PeVideoEncoderRotaryEmbedding", base=20_000.0,
        hidden=1792, heads=14, layers=6, head_dim=128, length=10_000, interleaved=True),
    "pocket_tts": SequenceTower("PocketTTSConfig", code="PocketTTSRotaryEmbedding", base=10_000.0, hidden=1024,
        heads=16, layers=6, length=8192),
    "pocket_tts_audio_tokenizer": SequenceTower("PocketTTSAudioTokenizerConfig",
        code="PocketTTSAudioTokenizerRotaryEmbedding", base=10_000.0, hidden=512, heads=8, kv_heads=8, layers=2,
        length=8000, notes=BOTH, weights=BOTH_STACKS),
    "pocket_tts_audio_tokenizer_decoder": SequenceTower("PocketTTSAudioTokenizerDecoderConfig",
        code="PocketTTSAudioTokenizerRotaryEmbedding", base=10_000.0, hidden=512, heads=8, kv_heads=8, layers=2,
        length=8000, weights=DECODER),
    "pocket_tts_audio_tokenizer_encoder": SequenceTower("PocketTTSAudioTokenizerEncoderConfig",
        code="PocketTTSAudioTokenizerRotaryEmbedding", base=10_000.0, hidden=512, heads=8, kv_heads=8, layers=2,
        length=8000, weights=ENCODER),
    "qwen2_5_omni_dit": SequenceTower("Qwen2_5OmniDiTConfig", code="Qwen2_5OmniDiTRotaryEmbedding", base=10_000.0,
        hidden=1024, heads=16, layers=22, head_dim=64, length=32_768, interleaved=True, permuted=True, rotated_heads=1,
        weights=Weights(attention=("transformer_blocks.{}.attn",), rows=(Rows("to_q", "q"), Rows("to_k", "k")))),
    "qwen3_omni_moe_code2wav": SequenceTower("Qwen3OmniMoeCode2WavConfig", code="Qwen3OmniMoeRotaryEmbedding",
        base=10_000.0, hidden=1024, heads=16, kv_heads=16, layers=8, length=8000),
    "voxtral_realtime_encoder": SequenceTower("VoxtralRealtimeEncoderConfig", code="VoxtralRealtimeRotaryEmbedding",
        base=10_000.0, hidden=1280, heads=32, layers=32, head_dim=64, length=1500, renamed=WHISPER),
    "xcodec2": SequenceTower("Xcodec2Config", code="Xcodec2RotaryEmbedding", base=10_000.0, hidden=1024, heads=16,
        kv_heads=16, layers=12, head_dim=64, length=4096, notes=HEAD_INDEX,
        parts={"semantic_model_config": PartOf("wav2vec2-bert")},
        weights=Weights(attention=("acoustic_decoder.layers.{}.self_attn",))),
    "csm": TextModel("CsmConfig", base=500_000.0, hidden=2048, heads=32, kv_heads=8, layers=16, length=2048,
        parts={"codec_config": PartOf("mimi"), "depth_decoder_config": always("csm_depth_decoder_model")},
        weights=Weights(attention=("backbone_model.layers.{}.self_attn",))),
    "csm_depth_decoder_model": TextModel("CsmDepthDecoderConfig", base=500_000.0, hidden=1024, heads=8, kv_heads=2,
        layers=4, length=33),
    "higgs_audio_v2": TextModel("HiggsAudioV2Config", rope=HIGGS_AUDIO_V2, hidden=3072, heads=24, kv_heads=8,
        layers=28, head_dim=128, length=2048),
    "kyutai_speech_to_text": TextModel("KyutaiSpeechToTextConfig", base=10_000.0, hidden=2048, heads=32, layers=48,
        length=750, parts={"codec_config": PartOf("mimi")}, weights=Weights(rows=LINEAR)),
    "moshi": TextModel("MoshiConfig", base=10_000.0, hidden=4096, heads=32, layers=32, length=3000,
        parts={"audio_encoder_config": PartOf("mimi")}, weights=Weights(rows=LINEAR)),
    "nemo_speechlm": CompositeModel(parts={"word_timestamp_config": always("nemotron3_5_transcribe_word_timestamp")}),
    "nemotron3_5_transcribe_audio": CompositeModel(parts={"asr_config": always("nemotron3_5_transcribe_asr_audio")}),
}
# fmt: on
