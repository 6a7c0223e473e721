"""A kernel that draws from given words; imported where Triton is interpreted."""

import triton
import triton.language as tl

from dpbench.step.mechanism.gpu_noise import _add_word


@triton.jit
def add_words(total, words, further, size: tl.constexpr, law: tl.constexpr):
    place = tl.arange(0, size)
    word = tl.load(words + place)
    more = tl.load(further + place)
    low, high = word.to(tl.uint32), (word >> 32).to(tl.uint32)
    more_low, more_high = more.to(tl.uint32), (more >> 32).to(tl.uint32)
    _add_word(total, place, size, low, high, more_low, more_high, 1.0, 1.0, law, 0.0)
