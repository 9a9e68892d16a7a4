# SPDX-License-Identifier: Apache-2.0
"""The images: letters in the fonts that come with Matplotlib, turned, moved, scaled and with noise on them.

The fonts of the test are not those of the training.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

LETTERS = "ABCDEFGHIJ"
SIZE = 24
EACH = 20
"""Images of a letter in a font."""
FONTS = "DejaVu*.ttf", "STIXGeneral*.ttf", "cmr10.ttf", "cmss10.ttf", "cmtt10.ttf", "cmb10.ttf"
TEST_FONTS = "DejaVuSans-Oblique.ttf", "DejaVuSerif.ttf", "STIXGeneralBol.ttf", "cmtt10.ttf"


def samples(*, test: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (n, 1, SIZE, SIZE) of 0 to 1, and labels (n); always the same."""
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    fonts = sorted({path for pattern in FONTS for path in folder.glob(pattern) if "Display" not in path.name})
    random = np.random.Generator(np.random.PCG64(int(test)))
    images, labels = [], []
    for path in (path for path in fonts if (path.name in TEST_FONTS) == test):
        for label, letter in enumerate(LETTERS):
            for _ in range(EACH):
                font = ImageFont.truetype(str(path), size=int(random.integers(15, 20)))
                canvas = Image.new("L", (SIZE, SIZE))
                place = tuple(SIZE / 2 + random.uniform(-2, 2, size=2))
                ImageDraw.Draw(canvas).text(place, letter, fill=255, font=font, anchor="mm")
                turned = canvas.rotate(random.uniform(-20, 20), resample=Image.Resampling.BILINEAR)
                noisy = np.asarray(turned) / 255 + random.normal(0, 0.2, size=(SIZE, SIZE))
                images.append(noisy.clip(0, 1))
                labels.append(label)
    return torch.tensor(np.stack(images), dtype=torch.float32)[:, None], torch.tensor(labels)
