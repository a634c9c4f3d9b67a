"""Positions of several axes: pictures, class tokens, and text beside pictures."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from eye.halves import LlamaAttention, rotate_half
from eye.skeleton import DIM, HEADS, WIDTH, Attention, Block, Decoder, both, decoder, ids
from eye.truth import Case, Site, Truth, Turn, halves, ladder, neighbours

ROWS, COLUMNS = 3, 2
PATCHES = ROWS * COLUMNS
GRID = [[p // COLUMNS for p in range(PATCHES)], [p % COLUMNS for p in range(PATCHES)]]
PIXELS = torch.linspace(-1, 1, 3 * ROWS * COLUMNS * 4).view(1, 3, 2 * ROWS, 2 * COLUMNS)


class Pictures(nn.Module):
    """Patches of two by two pixels; ``prefix`` class tokens before them; returns pooled features."""

    def __init__(self, attention, prefix=0):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, WIDTH, kernel_size=2, stride=2)
        self.prefix = nn.Parameter(torch.randn(1, prefix, WIDTH))
        self.blocks = nn.ModuleList(Block(attention(i)) for i in range(2))

    def forward(self, pixel_values):
        grid = self.patch_embed(pixel_values)
        x = torch.cat([self.prefix.expand(grid.shape[0], -1, -1), grid.flatten(2).transpose(1, 2)], dim=1)
        for block in self.blocks:
            x = block(x, grid.shape[-2:])
        return x.mean(1)


def rows_and_columns(shape):
    rows, columns = torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij")
    return rows.flatten(), columns.flatten()


class PictureAttention(Attention):
    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


class Blocks(PictureAttention):
    """The first half of the channels turns by rows, the second by columns; rotate_half inside each."""

    def rotate(self, q, k, shape):
        inv_freq = 100.0 ** (-torch.arange(0, DIM // 2, 2) / (DIM // 2))
        out = []
        for x in (q, k):
            parts = []
            for part, at in zip(x.chunk(2, dim=-1), rows_and_columns(shape), strict=True):
                emb = torch.outer(at.float(), inv_freq).repeat(1, 2)
                parts.append(part * emb.cos() + rotate_half(part) * emb.sin())
            out.append(torch.cat(parts, dim=-1))
        return out


class QwenVision(PictureAttention):
    """Qwen2-VL's tower: frequencies of rows and columns side by side, then doubled."""

    def rotate(self, q, k, shape):
        inv_freq = 1.0 / (10000.0 ** (torch.arange(0, DIM // 2, 2, dtype=torch.float) / (DIM // 2)))
        pos_ids = torch.stack(rows_and_columns(shape), dim=-1)
        full = torch.outer(torch.arange(max(shape)), inv_freq)
        emb = full[pos_ids].flatten(1).repeat(1, 2)
        cos, sin = emb.cos().to(q.dtype), emb.sin().to(q.dtype)
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class Alternating(PictureAttention):
    """Llama 4's tower: complex numbers, columns and rows by turns."""

    def rotate(self, q, k, shape):
        freqs = 1.0 / (10000.0 ** (torch.arange(0, DIM, 4)[: DIM // 4].float() / DIM))
        rows, columns = (torch.outer(at.float(), freqs) for at in rows_and_columns(shape))
        angle = torch.stack([columns, rows], dim=-1).flatten(1)
        cis = torch.view_as_complex(torch.stack([angle.cos(), angle.sin()], dim=-1))
        turn = lambda x: torch.view_as_real(torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * cis)  # noqa: E731
        return turn(q).flatten(3).type_as(q), turn(k).flatten(3).type_as(k)


class EvaAttention(nn.Module):
    """EVA's: one bias for q and one for v, and a class token that passes."""

    def __init__(self, layer=0):
        super().__init__()
        self.qkv, self.o_proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.q_bias, self.v_bias = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(WIDTH))

    def pieces(self, x):
        bias = torch.cat((self.q_bias, torch.zeros_like(self.v_bias), self.v_bias))
        return F.linear(x, self.qkv.weight, bias).reshape(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x, shape):
        q, k, v = self.pieces(x)
        inv_freq = 100.0 ** (-torch.arange(0, DIM // 2, 2) / (DIM // 2))
        angle = torch.cat([torch.outer(at.float(), inv_freq) for at in rows_and_columns(shape)], -1).repeat_interleave(
            2, -1
        )
        sin, cos = angle.sin(), angle.cos()
        q = torch.cat([q[:, :, :1, :], self.turned(q[:, :, 1:, :], sin, cos)], dim=2).type_as(v)
        k = torch.cat([k[:, :, :1, :], self.turned(k[:, :, 1:, :], sin, cos)], dim=2).type_as(v)
        return self.o_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    @staticmethod
    def turned(x, sin, cos):
        return x * cos + torch.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape) * sin


class Centres(PictureAttention):
    """DINOv3's: the centres of patches between -1 and 1, times 2 pi over the period."""

    def rotate(self, q, k, shape):
        centres = [(torch.arange(0.5, n) / n * 2 - 1) for n in shape]
        coords = torch.stack(torch.meshgrid(*centres, indexing="ij"), dim=-1).flatten(0, 1)
        periods = 100.0 ** (2 * torch.arange(DIM // 4) / (DIM // 2))
        angles = (2 * math.pi * coords[:, :, None] / periods[None, None, :]).flatten(1, 2).tile(2)
        return tuple(x * angles.cos() + rotate_half(x) * angles.sin() for x in (q, k))


# --- text and pictures with three positions a token

SECTIONS = [1, 1, 2]
THREE = torch.tensor([[[0, 1, 2, 2, 2, 2, 4]], [[0, 1, 2, 2, 3, 3, 4]], [[0, 1, 2, 3, 2, 3, 4]]])


class Sections(Decoder):
    """Qwen2-VL's: position_ids [3, batch, tokens]; sections of the tables are of time, row and column."""

    def positional(self, h, position_ids):
        inv_freq = 1.0 / (1e6 ** (torch.arange(0, DIM, 2, dtype=torch.int64).float() / DIM))
        expanded = inv_freq[None, None, :, None].expand(3, position_ids.shape[1], -1, 1)
        freqs = (expanded @ position_ids[:, :, None, :].float()).transpose(2, 3)
        emb = torch.cat((freqs, freqs), dim=-1)
        return self.chosen(emb.cos()).to(h.dtype), self.chosen(emb.sin()).to(h.dtype)

    def chosen(self, table):
        return torch.cat([m[i % 3] for i, m in enumerate(table.split(SECTIONS * 2, dim=-1))], dim=-1)


class InterleavedSections(Sections):
    """Qwen3-VL's: time everywhere, then every third pair overwritten by row and column."""

    def chosen(self, table):
        out = table[0].clone()
        for axis in (1, 2):
            for half in (0, DIM // 2):
                out[..., half + axis : half + DIM // 2 : 3] = table[axis][..., half + axis : half + DIM // 2 : 3]
        return out


class Joint(nn.Module):
    """Qwen-Image's: text and picture have projections and rotations of their own, and one attention."""

    def __init__(self):
        super().__init__()
        self.add_q_proj, self.add_k_proj, self.add_v_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.to_q, self.to_k, self.to_v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.to_out, self.to_add_out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, text, picture):
        heads = lambda x, *projections: [p(x).unflatten(-1, (HEADS, -1)) for p in projections]  # noqa: E731
        tq, tk, tv = heads(text, self.add_q_proj, self.add_k_proj, self.add_v_proj)
        q, k, v = heads(picture, self.to_q, self.to_k, self.to_v)
        rows, columns = rows_and_columns((ROWS, COLUMNS))
        of_text = (torch.arange(text.shape[1]) + ROWS,) * 2
        tq, tk = self.turned(tq, of_text), self.turned(tk, of_text)
        q, k = self.turned(q, (rows, columns)), self.turned(k, (rows, columns))
        q, k, v = (torch.cat(both, dim=1).transpose(1, 2) for both in ((tq, q), (tk, k), (tv, v)))
        out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.to_add_out(out[:, : text.shape[1]]), self.to_out(out[:, text.shape[1] :])

    @staticmethod
    def turned(x, positions):
        freqs = 10000.0 ** (-torch.arange(0, DIM // 2, 2) / (DIM // 2))
        angle = torch.cat([torch.outer(at.float(), freqs) for at in positions], -1)
        cis = torch.polar(torch.ones_like(angle), angle)[:, None]
        return torch.view_as_real(torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * cis).flatten(3).type_as(x)


class Diffusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.text, self.patch = nn.Embedding(64, WIDTH), nn.Conv2d(3, WIDTH, 2, 2)
        self.blocks = nn.ModuleList(Joint() for _ in range(2))

    def forward(self, input_ids, pixel_values):
        text, picture = self.text(input_ids), self.patch(pixel_values).flatten(2).transpose(1, 2)
        for block in self.blocks:
            a, b = block(text, picture)
            text, picture = text + a, picture + b
        return picture


def picture(name, attention, turn, prefix=0):
    sites = both(turn, where="blocks.{}.attn")
    return Case(name, lambda: Pictures(attention, prefix), (PIXELS,), Truth(sites))


HALF = ladder(100.0, DIM // 2)
WHOLE = ladder(10000.0, DIM // 2)
WITH_CLASS = [[0, *axis] for axis in GRID]
CENTRES = [[(r + 0.5) / ROWS * 2 - 1 for r in GRID[0]], [(c + 0.5) / COLUMNS * 2 - 1 for c in GRID[1]]]
LATE = list(range(ROWS, ROWS + 5))
JOINT = Turn(neighbours(DIM), WHOLE * 2, [[*LATE, *GRID[0]], [*LATE, *GRID[1]]], (0, 0, 1, 1))
MROPE = Turn(halves(DIM), ladder(1e6, DIM), THREE[:, 0].tolist(), (0, 1, 2, 2))
PICTURES = [
    picture("rows and columns in blocks", Blocks,
            Turn(halves(4) + halves(4, 4), HALF * 2, GRID, (0, 0, 1, 1))),
    picture("qwen vision", QwenVision, Turn(halves(DIM), WHOLE * 2, GRID, (0, 0, 1, 1))),
    picture("rows and columns by turns", Alternating,
            Turn(neighbours(DIM), [f for f in WHOLE for _ in range(2)], GRID, (1, 0, 1, 0))),
    picture("class token that passes", EvaAttention, Turn(neighbours(DIM), HALF * 2, WITH_CLASS, (0, 0, 1, 1)), 1),
    picture("centres of patches", Centres,
            Turn(halves(DIM), [2 * math.pi * f for f in HALF] * 2, CENTRES, (0, 0, 1, 1))),
    decoder("m-rope", LlamaAttention, MROPE, Sections, (ids(), THREE)),
    decoder("m-rope interleaved", LlamaAttention,
            Turn(halves(DIM), ladder(1e6, DIM), THREE[:, 0].tolist(), (0, 1, 2, 0)), InterleavedSections,
            (ids(), THREE)),
    Case("text beside a picture", Diffusion, (ids(5), PIXELS),
         Truth(tuple(Site(f"blocks.{i}", JOINT, JOINT) for i in range(2)))),
]  # fmt: skip
