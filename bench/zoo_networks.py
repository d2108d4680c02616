"""Networks of the zoo that no package carries, written from their papers at the sizes of their first releases."""

import torch
from torch import nn
from torch.nn import functional as F


class Picked(nn.Module):
    """A model, and which of its results are outputs."""

    def __init__(self, model, pick):
        super().__init__()
        self.model, self.pick = model, pick

    def forward(self, *args):
        return self.pick(self.model, *args)


def conv(into, out, kernel=3, stride=1, groups=1, act=nn.ReLU, dim=2, padding=None, dilation=1):
    """Convolution, normalisation, activation."""
    kind, norm = (nn.Conv2d, nn.BatchNorm2d) if dim == 2 else (nn.Conv1d, nn.BatchNorm1d)
    padding = dilation * (kernel - 1) // 2 if padding is None else padding
    return nn.Sequential(kind(into, out, kernel, stride, padding, dilation, groups, bias=False), norm(out),
                         act() if act else nn.Identity())


def separable(into, out, stride=1, kernel=3, act=nn.ReLU):
    return nn.Sequential(conv(into, into, kernel, stride, into, act), conv(into, out, 1, act=act))


class Residual(nn.Module):
    def __init__(self, body, act=None, scale=1.0):
        super().__init__()
        self.body, self.act, self.scale = body, act or nn.Identity(), scale

    def forward(self, x):
        return self.act(x + self.body(x) * self.scale)


# ---- detection ----


class C2f(nn.Module):
    """YOLO v8: a split, bottlenecks in a row, all of them concatenated."""

    def __init__(self, into, out, count, shortcut):
        super().__init__()
        self.half = out // 2
        self.first, self.last = conv(into, out, 1, act=nn.SiLU), conv((2 + count) * self.half, out, 1, act=nn.SiLU)
        body = lambda: nn.Sequential(*[conv(self.half, self.half, act=nn.SiLU) for _ in range(2)])  # noqa: E731
        self.blocks = nn.ModuleList(Residual(body()) if shortcut else body() for _ in range(count))

    def forward(self, x):
        parts = list(self.first(x).split(self.half, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class C3(nn.Module):
    """YOLO v5: bottlenecks on one of two branches."""

    def __init__(self, into, out, count, shortcut):
        super().__init__()
        half = out // 2
        body = lambda: nn.Sequential(conv(half, half, 1, act=nn.SiLU), conv(half, half, act=nn.SiLU))  # noqa: E731
        self.left = nn.Sequential(conv(into, half, 1, act=nn.SiLU),
                                  *[Residual(body()) if shortcut else body() for _ in range(count)])
        self.right, self.last = conv(into, half, 1, act=nn.SiLU), conv(2 * half, out, 1, act=nn.SiLU)

    def forward(self, x):
        return self.last(torch.cat([self.left(x), self.right(x)], 1))


class Pyramid(nn.Module):
    """SPPF: three poolings in a row, concatenated."""

    def __init__(self, width):
        super().__init__()
        self.first, self.last = conv(width, width // 2, 1, act=nn.SiLU), conv(2 * width, width, 1, act=nn.SiLU)

    def forward(self, x):
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """YOLO v5 (`block` C3) and v8 (C2f) at scale n: boxes in pixels and class scores, before suppression."""

    def __init__(self, block, size, classes=80):
        super().__init__()
        silu = dict(act=nn.SiLU)
        w = (16, 32, 64, 128, 256)
        self.stem = nn.Sequential(conv(3, w[0], 3 if block is C2f else 6, 2, padding=1 if block is C2f else 2, **silu),
                                  conv(w[0], w[1], 3, 2, **silu), block(w[1], w[1], 1, True))
        self.p3 = nn.Sequential(conv(w[1], w[2], 3, 2, **silu), block(w[2], w[2], 2, True))
        self.p4 = nn.Sequential(conv(w[2], w[3], 3, 2, **silu), block(w[3], w[3], 2, True))
        self.p5 = nn.Sequential(conv(w[3], w[4], 3, 2, **silu), block(w[4], w[4], 1, True), Pyramid(w[4]))
        self.up4, self.up3 = block(w[4] + w[3], w[3], 1, False), block(w[3] + w[2], w[2], 1, False)
        self.down4, self.down5 = conv(w[2], w[2], 3, 2, **silu), conv(w[3], w[3], 3, 2, **silu)
        self.out4, self.out5 = block(w[2] + w[3], w[3], 1, False), block(w[3] + w[4], w[4], 1, False)
        self.upsample = nn.Upsample(scale_factor=2)
        head = lambda c, mid, out: nn.Sequential(  # noqa: E731
            conv(c, mid, **silu), conv(mid, mid, **silu), nn.Conv2d(mid, out, 1))
        self.boxes = nn.ModuleList(head(c, 64, 64) for c in w[2:])
        self.scores = nn.ModuleList(head(c, 80, classes) for c in w[2:])
        centres, strides = [], []
        for stride in (8, 16, 32):
            at = torch.arange(size // stride) + 0.5
            y, x = torch.meshgrid(at, at, indexing="ij")
            centres.append(torch.stack([x.flatten(), y.flatten()]))
            strides.append(torch.full((1, x.numel()), float(stride)))
        self.register_buffer("centres", torch.cat(centres, 1)[None])
        self.register_buffer("strides", torch.cat(strides, 1))
        self.register_buffer("bins", torch.arange(16.0).view(1, 16, 1, 1))

    def forward(self, image):
        p3 = self.p3(self.stem(image))
        p4 = self.p4(p3)
        p5 = self.p5(p4)
        n4 = self.up4(torch.cat([self.upsample(p5), p4], 1))
        n3 = self.up3(torch.cat([self.upsample(n4), p3], 1))
        n4 = self.out4(torch.cat([self.down4(n3), n4], 1))
        n5 = self.out5(torch.cat([self.down5(n4), p5], 1))
        levels = (n3, n4, n5)
        boxes = torch.cat([head(x).flatten(2) for head, x in zip(self.boxes, levels)], 2)
        scores = torch.cat([head(x).flatten(2) for head, x in zip(self.scores, levels)], 2)
        sides = boxes.view(boxes.shape[0], 4, 16, -1).transpose(1, 2).softmax(1)
        near, far = (sides * self.bins).sum(1).chunk(2, 1)
        near, far = self.centres - near, self.centres + far
        return torch.cat([torch.cat([(near + far) / 2, far - near], 1) * self.strides, scores.sigmoid()], 1)


class YoloTiny(nn.Module):
    """YOLO v3 tiny: leaky convolutions and poolings, two scales of three anchors."""

    def __init__(self):
        super().__init__()
        act = lambda: nn.LeakyReLU(0.1)  # noqa: E731
        pool = lambda: nn.MaxPool2d(2)  # noqa: E731
        self.first = nn.Sequential(conv(3, 16, act=act), pool(), conv(16, 32, act=act), pool(), conv(32, 64, act=act),
                                   pool(), conv(64, 128, act=act), pool(), conv(128, 256, act=act))
        self.second = nn.Sequential(pool(), conv(256, 512, act=act), nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(2, 1),
                                    conv(512, 1024, act=act), conv(1024, 256, 1, act=act))
        self.coarse = nn.Sequential(conv(256, 512, act=act), nn.Conv2d(512, 255, 1))
        self.up = nn.Sequential(conv(256, 128, 1, act=act), nn.Upsample(scale_factor=2))
        self.fine = nn.Sequential(conv(384, 256, act=act), nn.Conv2d(256, 255, 1))

    def forward(self, image):
        a = self.first(image)
        b = self.second(a)
        return self.coarse(b), self.fine(torch.cat([self.up(b), a], 1))


class Deconvolved(nn.Module):
    """A backbone, three transposed convolutions, and heads: CenterNet, and the simple baselines of poses."""

    def __init__(self, backbone, into, widths, heads):
        super().__init__()
        self.backbone = backbone
        layers = []
        for out in widths:
            layers += [nn.ConvTranspose2d(into, out, 4, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            into = out
        self.up = nn.Sequential(*layers)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Conv2d(into, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, n, 1)) if len(heads) > 1
            else nn.Conv2d(into, n, 1) for n in heads)

    def forward(self, image):
        x = self.up(self.backbone(image)[-1])
        return tuple(head(x) for head in self.heads)


class DbNet(nn.Module):
    """Text detection by differentiable binarisation: a feature pyramid, two transposed convolutions."""

    def __init__(self, backbone, widths, inner):
        super().__init__()
        self.backbone = backbone
        self.flat = nn.ModuleList(nn.Conv2d(w, inner, 1, bias=False) for w in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(inner, inner // 4, 3, padding=1, bias=False) for _ in widths)
        self.head = nn.Sequential(conv(inner, inner // 4), nn.ConvTranspose2d(inner // 4, inner // 4, 2, 2),
                                  nn.BatchNorm2d(inner // 4), nn.ReLU(), nn.ConvTranspose2d(inner // 4, 1, 2, 2),
                                  nn.Sigmoid())

    def forward(self, image):
        levels = [flat(x) for flat, x in zip(self.flat, self.backbone(image))]
        for i in range(len(levels) - 2, -1, -1):
            levels[i] = levels[i] + F.interpolate(levels[i + 1], scale_factor=2.0)
        parts = [smooth(x) for smooth, x in zip(self.smooth, levels)]
        parts = [F.interpolate(x, scale_factor=float(2**i)) if i else x for i, x in enumerate(parts)]
        return self.head(torch.cat(parts, 1))


class BlazeBlock(nn.Module):
    def __init__(self, into, out, stride=1):
        super().__init__()
        self.stride, self.more = stride, out - into
        self.body = nn.Sequential(nn.Conv2d(into, into, 5, stride, 2, groups=into), nn.Conv2d(into, out, 1),
                                  nn.BatchNorm2d(out))

    def forward(self, x):
        skip = F.max_pool2d(x, 2) if self.stride == 2 else x
        return F.relu(self.body(x) + F.pad(skip, (0, 0, 0, 0, 0, self.more)))


class BlazeFace(nn.Module):
    """Faces at 128x128: blocks of depthwise 5x5, 896 anchors."""

    def __init__(self):
        super().__init__()
        first = [(24, 1), (24, 1), (28, 2), (32, 1), (36, 1), (42, 1), (48, 2), (56, 1), (64, 1), (72, 1), (80, 1),
                 (88, 1)]
        layers, into = [conv(3, 24, 5, 2)], 24
        for out, stride in first:
            layers.append(BlazeBlock(into, out, stride))
            into = out
        self.first = nn.Sequential(*layers)
        self.second = nn.Sequential(BlazeBlock(88, 96, 2), *[BlazeBlock(96, 96) for _ in range(4)])
        self.heads = nn.ModuleList(
            nn.Conv2d(a, b, 1) for a, b in ((88, 2), (96, 6), (88, 32), (96, 96)))

    def forward(self, image):
        a = self.first(image)
        b = self.second(a)
        flat = lambda x, n: x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, n)  # noqa: E731
        score = torch.cat([flat(self.heads[0](a), 1), flat(self.heads[1](b), 1)], 1)
        boxes = torch.cat([flat(self.heads[2](a), 16), flat(self.heads[3](b), 16)], 1)
        return boxes, score.sigmoid()


# ---- segmentation ----


class UNet(nn.Module):
    """`transposed`: the way up grows by transposed convolutions, bilinear otherwise."""

    def __init__(self, widths, into=3, out=2, transposed=True):
        super().__init__()
        double = lambda a, b: nn.Sequential(conv(a, b), conv(b, b))  # noqa: E731
        self.down = nn.ModuleList(double(a, b) for a, b in zip((into, *widths), widths))
        pairs = list(zip(widths[:0:-1], widths[-2::-1]))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 2, 2) if transposed else nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(a, b, 1)) for a, b in pairs)
        self.join = nn.ModuleList(double(2 * b, b) for _, b in pairs)
        self.last = nn.Conv2d(widths[0], out, 1)

    def forward(self, x):
        kept = []
        for i, stage in enumerate(self.down):
            x = stage(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for grow, join, skip in zip(self.up, self.join, kept[-2::-1]):
            x = join(torch.cat([skip, grow(x)], 1))
        return self.last(x)


class FastScnn(nn.Module):
    """Two branches that join at an eighth of the size."""

    def __init__(self, classes=19):
        super().__init__()
        bottleneck = lambda a, b, s: nn.Sequential(  # noqa: E731
            conv(a, 6 * a, 1), conv(6 * a, 6 * a, 3, s, 6 * a), conv(6 * a, b, 1, act=None))
        stage = lambda a, b, s: [bottleneck(a, b, s), *[Residual(bottleneck(b, b, 1)) for _ in range(2)]]  # noqa: E731
        self.learn = nn.Sequential(conv(3, 32, 3, 2), separable(32, 48, 2), separable(48, 64, 2))
        self.deep = nn.Sequential(*stage(64, 64, 2), *stage(64, 96, 2), *stage(96, 128, 1))
        self.pooled = nn.ModuleList(conv(128, 32, 1) for _ in range(4))
        self.context = conv(256, 128, 1)
        self.low = nn.Sequential(conv(128, 128, 3, 1, 128), nn.Conv2d(128, 128, 1))
        self.high = nn.Conv2d(64, 128, 1)
        self.classify = nn.Sequential(separable(128, 128), separable(128, 128), nn.Conv2d(128, classes, 1))

    def forward(self, image):
        high = self.learn(image)
        x = self.deep(high)
        size = x.shape[-2:]
        # To 1, 2, 4 and 8 cells; 3 and 6, as published, do not divide the size, and the exporter refuses them.
        parts = [F.interpolate(reduce(F.adaptive_avg_pool2d(x, n)), size, mode="bilinear")
                 for n, reduce in zip((1, 2, 4, 8), self.pooled)]
        x = self.context(torch.cat([x, *parts], 1))
        x = self.low(F.interpolate(x, scale_factor=4.0, mode="bilinear"))
        return F.interpolate(self.classify(F.relu(x + self.high(high))), image.shape[-2:], mode="bilinear")


# ---- text in images ----


class Crnn(nn.Module):
    """Convolutions over a line of text of height 32, two bidirectional LSTMs."""

    def __init__(self, classes=37):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 64, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU(),
            nn.MaxPool2d(2), conv(128, 256), nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU(),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)), conv(256, 512), nn.Conv2d(512, 512, 3, 1, 1), nn.ReLU(),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)), conv(512, 512, 2, padding=0))
        self.recur = nn.LSTM(512, 256, 2, bidirectional=True)
        self.out = nn.Linear(512, classes)

    def forward(self, image):
        x = self.features(image).squeeze(2).permute(2, 0, 1)
        return self.out(self.recur(x)[0])


# ---- speech and sound ----


class QuartzNet(nn.Module):
    """Time-depthwise separable convolutions with long kernels, 5x5."""

    def __init__(self, symbols=29):
        super().__init__()
        sep = lambda a, b, k, act=nn.ReLU, dilation=1: nn.Sequential(  # noqa: E731
            nn.Conv1d(a, a, k, padding=dilation * (k - 1) // 2, dilation=dilation, groups=a, bias=False),
            conv(a, b, 1, act=act, dim=1))
        self.first = nn.Sequential(
            nn.Conv1d(64, 64, 33, 2, 16, groups=64, bias=False), conv(64, 256, 1, dim=1))
        blocks, into = [], 256
        for out, kernel in ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75)):
            body = [sep(into if i == 0 else out, out, kernel, nn.ReLU if i < 4 else None) for i in range(5)]
            blocks.append(nn.ModuleList([nn.Sequential(*body), conv(into, out, 1, act=None, dim=1)]))
            into = out
        self.blocks = nn.ModuleList(blocks)
        self.last = nn.Sequential(sep(512, 512, 87, dilation=2), conv(512, 1024, 1, dim=1), nn.Conv1d(1024, symbols, 1))

    def forward(self, features):
        x = self.first(features)
        for body, skip in self.blocks:
            x = F.relu(body(x) + skip(x))
        return self.last(x).log_softmax(1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))


class Turned(nn.Module):
    """Channels before time, for what is inside."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x.transpose(1, 2)).transpose(1, 2)


class Conformer(nn.Module):
    """Conformer S: 16 blocks of width 144, without relative positions."""

    def __init__(self, bins=80, width=144, heads=4, blocks=16, symbols=1000):
        super().__init__()
        feed = lambda: Residual(nn.Sequential(  # noqa: E731
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)), scale=0.5)
        convolve = lambda: Residual(nn.Sequential(nn.LayerNorm(width), Turned(nn.Sequential(  # noqa: E731
            nn.Conv1d(width, 2 * width, 1), nn.GLU(1), conv(width, width, 31, 1, width, nn.SiLU, 1),
            nn.Conv1d(width, width, 1)))))
        self.subsample = nn.Sequential(nn.Conv2d(1, width, 3, 2), nn.ReLU(), nn.Conv2d(width, width, 3, 2), nn.ReLU())
        self.flat = nn.Linear(width * (((bins - 1) // 2 - 1) // 2), width)
        self.blocks = nn.Sequential(*[nn.Sequential(
            feed(), Residual(nn.Sequential(nn.LayerNorm(width), Attention(width, heads))), convolve(), feed(),
            nn.LayerNorm(width)) for _ in range(blocks)])
        self.out = nn.Linear(width, symbols)

    def forward(self, features):
        x = self.subsample(features.unsqueeze(1)).permute(0, 3, 1, 2).flatten(2)
        return self.out(self.blocks(self.flat(x)))


class DeepSpeech(nn.Module):
    """Deep Speech 2: two convolutions, three bidirectional GRUs."""

    def __init__(self, hidden=512, symbols=29):
        super().__init__()
        act = lambda: nn.Hardtanh(0, 20)  # noqa: E731
        self.convs = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5), bias=False), nn.BatchNorm2d(32), act(),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5), bias=False), nn.BatchNorm2d(32), act())
        self.recur = nn.GRU(32 * 41, hidden, 3, bidirectional=True)
        self.out = nn.Linear(2 * hidden, symbols)

    def forward(self, spectrogram):
        x = self.convs(spectrogram).flatten(1, 2).permute(2, 0, 1)
        return self.out(self.recur(x)[0])


class XVector(nn.Module):
    """A speaker's vector: dilated convolutions, mean and deviation over time."""

    def __init__(self, bins=30):
        super().__init__()
        self.frames = nn.Sequential(
            conv(bins, 512, 5, dim=1, padding=0), conv(512, 512, 3, dim=1, dilation=2, padding=0),
            conv(512, 512, 3, dim=1, dilation=3, padding=0), conv(512, 512, 1, dim=1), conv(512, 1500, 1, dim=1))
        self.out = nn.Sequential(nn.Linear(3000, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 512))

    def forward(self, features):
        x = self.frames(features)
        mean = x.mean(2, keepdim=True)
        deviation = ((x - mean) ** 2).mean(2).clamp(min=1e-6).sqrt()
        return self.out(torch.cat([mean.squeeze(2), deviation], 1))


class Separation(nn.Module):
    """Conv-TasNet: two voices of one wave; a transposed convolution writes the waves."""

    def __init__(self, filters=512, width=128, hidden=512, blocks=8, repeats=3, voices=2):
        super().__init__()
        block = lambda d: Residual(nn.Sequential(  # noqa: E731
            nn.Conv1d(width, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden, eps=1e-8),
            nn.Conv1d(hidden, hidden, 3, padding=d, dilation=d, groups=hidden), nn.PReLU(),
            nn.GroupNorm(1, hidden, eps=1e-8), nn.Conv1d(hidden, width, 1)))
        self.filters, self.voices = filters, voices
        self.encode = nn.Conv1d(1, filters, 16, 8, bias=False)
        self.mask = nn.Sequential(nn.GroupNorm(1, filters, eps=1e-8), nn.Conv1d(filters, width, 1),
                                  *[block(2**i) for _ in range(repeats) for i in range(blocks)], nn.PReLU(),
                                  nn.Conv1d(width, voices * filters, 1), nn.Sigmoid())
        self.decode = nn.ConvTranspose1d(filters, 1, 16, 8, bias=False)

    def forward(self, wave):
        x = F.relu(self.encode(wave.unsqueeze(1)))
        masks = self.mask(x).view(x.shape[0], self.voices, self.filters, -1)
        return self.decode((masks * x.unsqueeze(1)).flatten(0, 1)).view(x.shape[0], self.voices, -1)


class HifiGan(nn.Module):
    """HiFi-GAN V2: a wave from a mel spectrogram, by transposed convolutions and dilated residuals."""

    def __init__(self, width=128):
        super().__init__()
        leaky = lambda: nn.LeakyReLU(0.1)  # noqa: E731
        body = lambda c, k: nn.Sequential(*[Residual(nn.Sequential(  # noqa: E731
            leaky(), nn.Conv1d(c, c, k, padding=d * (k - 1) // 2, dilation=d), leaky(),
            nn.Conv1d(c, c, k, padding=(k - 1) // 2))) for d in (1, 3, 5)])
        self.first = nn.Conv1d(80, width, 7, padding=3)
        self.ups, self.bodies = nn.ModuleList(), nn.ModuleList()
        for rate, kernel in ((8, 16), (8, 16), (2, 4), (2, 4)):
            grow = nn.ConvTranspose1d(width, width // 2, kernel, rate, (kernel - rate) // 2)
            self.ups.append(nn.Sequential(leaky(), grow))
            width //= 2
            self.bodies.append(nn.ModuleList(body(width, k) for k in (3, 7, 11)))
        self.last = nn.Sequential(nn.LeakyReLU(), nn.Conv1d(width, 1, 7, padding=3), nn.Tanh())

    def forward(self, mel):
        x = self.first(mel)
        for up, bodies in zip(self.ups, self.bodies):
            x = up(x)
            x = (bodies[0](x) + bodies[1](x) + bodies[2](x)) / 3
        return self.last(x)


def m5(classes=35):
    """A 1-D network over a second of raw wave at 8 kHz."""
    layers, into = [], 1
    for out, kernel, stride in ((32, 80, 16), (32, 3, 1), (64, 3, 1), (64, 3, 1)):
        layers += [conv(into, out, kernel, stride, dim=1, padding=0), nn.MaxPool1d(4)]
        into = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, classes), nn.LogSoftmax(1))


def panns(widths=(64, 128, 256, 512), kernel=5, classes=527):
    """PANNs' Cnn6: convolutions over a log-mel spectrogram, mean of the bins, largest and mean over time."""

    class Pool(nn.Module):
        def forward(self, x):
            x = x.mean(3)
            return x.amax(2) + x.mean(2)

    layers = [nn.BatchNorm2d(1)]
    for into, out in zip((1, *widths), widths):
        layers += [conv(into, out, kernel), nn.AvgPool2d(2)]
    return nn.Sequential(*layers, Pool(), nn.Linear(widths[-1], widths[-1]), nn.ReLU(), nn.Linear(widths[-1], classes),
                         nn.Sigmoid())


def yamnet(classes=521):
    """MobileNet v1 over a patch of 96 frames and 64 bins."""
    layers, into = [conv(1, 32, 3, 2)], 32
    for out, stride in (
            (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)):
        layers.append(separable(into, out, stride))
        into = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, classes), nn.Sigmoid())


def vggish():
    layers, into = [], 1
    for out, count in ((64, 1), (128, 1), (256, 2), (512, 2)):
        for _ in range(count):
            layers += [nn.Conv2d(into, out, 3, padding=1), nn.ReLU()]
            into = out
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(12288, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
                         nn.Linear(4096, 128), nn.ReLU())


def ds_cnn(width=172, classes=12):
    """Keywords: depthwise separable convolutions over 49 frames of 10 coefficients (size M of `Hello Edge`)."""
    return nn.Sequential(nn.Conv2d(1, width, (10, 4), (2, 1), (5, 1)), nn.BatchNorm2d(width), nn.ReLU(),
                         *[separable(width, width) for _ in range(4)], nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(width, classes))


class SoundEvents(nn.Module):
    """Convolutions that pool the bins away, a bidirectional GRU over the frames."""

    def __init__(self, width=128, classes=10):
        super().__init__()
        self.convs = nn.Sequential(conv(1, width), nn.MaxPool2d((1, 5)), conv(width, width), nn.MaxPool2d((1, 4)),
                                   conv(width, width), nn.MaxPool2d((1, 2)))
        self.recur = nn.GRU(width, 64, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(128, classes)

    def forward(self, spectrogram):
        x = self.convs(spectrogram).squeeze(3).transpose(1, 2)
        return self.out(self.recur(x)[0]).sigmoid()


# ---- images to images ----


def espcn(scale=3):
    return nn.Sequential(nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
                         nn.Conv2d(32, scale * scale, 3, padding=1), nn.PixelShuffle(scale))


def srcnn():
    return nn.Sequential(nn.Conv2d(1, 64, 9, padding=4), nn.ReLU(), nn.Conv2d(64, 32, 5, padding=2), nn.ReLU(),
                         nn.Conv2d(32, 1, 5, padding=2))


def fsrcnn(scale=2, d=56, s=12, m=4):
    middle = [layer for _ in range(m) for layer in (nn.Conv2d(s, s, 3, padding=1), nn.PReLU(s))]
    return nn.Sequential(nn.Conv2d(1, d, 5, padding=2), nn.PReLU(d), nn.Conv2d(d, s, 1), nn.PReLU(s), *middle,
                         nn.Conv2d(s, d, 1), nn.PReLU(d),
                         nn.ConvTranspose2d(d, 1, 9, scale, 4, output_padding=scale - 1))


class Edsr(nn.Module):
    """The baseline: 16 residual blocks of width 64."""

    def __init__(self, blocks=16, width=64, scale=2):
        super().__init__()
        plain = lambda a, b: nn.Conv2d(a, b, 3, padding=1)  # noqa: E731
        self.first = plain(3, width)
        self.body = Residual(nn.Sequential(
            *[Residual(nn.Sequential(plain(width, width), nn.ReLU(), plain(width, width))) for _ in range(blocks)],
            plain(width, width)))
        self.last = nn.Sequential(plain(width, width * scale * scale), nn.PixelShuffle(scale), plain(width, 3))

    def forward(self, image):
        return self.last(self.body(self.first(image)))


class RealEsrganCompact(nn.Module):
    """Sixteen convolutions with PReLU, added to the enlarged image."""

    def __init__(self, width=64, count=16, scale=4):
        super().__init__()
        layers = [nn.Conv2d(3, width, 3, padding=1), nn.PReLU(width)]
        for _ in range(count):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.PReLU(width)]
        self.body = nn.Sequential(*layers, nn.Conv2d(width, 3 * scale * scale, 3, padding=1), nn.PixelShuffle(scale))
        self.up = nn.Upsample(scale_factor=scale)

    def forward(self, image):
        return self.body(image) + self.up(image)


class DnCnn(nn.Module):
    def __init__(self, depth=17, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
                                  *[conv(width, width) for _ in range(depth - 2)], nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, image):
        return image - self.body(image)


def fast_style():
    """Instance normalisation, reflected borders, nearest enlargement."""
    layer = lambda a, b, k, s=1, act=True: nn.Sequential(  # noqa: E731
        nn.ReflectionPad2d(k // 2), nn.Conv2d(a, b, k, s), nn.InstanceNorm2d(b, affine=True), *[nn.ReLU()] * act)
    up = lambda a, b: nn.Sequential(nn.Upsample(scale_factor=2), layer(a, b, 3))  # noqa: E731
    block = lambda: Residual(nn.Sequential(layer(128, 128, 3), layer(128, 128, 3, act=False)))  # noqa: E731
    return nn.Sequential(layer(3, 32, 9), layer(32, 64, 3, 2), layer(64, 128, 3, 2), *[block() for _ in range(5)],
                         up(128, 64), up(64, 32), nn.ReflectionPad2d(4), nn.Conv2d(32, 3, 9))


# ---- tables ----


def mlp(into=32, widths=(256, 128, 64), out=2):
    layers = []
    for a, b in zip((into, *widths), widths):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], out), nn.Softmax(1))


def sklearn_mlp(into=30, hidden=100, out=10):
    """MLPClassifier with default settings."""
    return nn.Sequential(nn.Linear(into, hidden), nn.ReLU(), nn.Linear(hidden, out), nn.Softmax(1))


def table_resnet(into=32, width=192, blocks=4):
    block = lambda: Residual(nn.Sequential(  # noqa: E731
        nn.BatchNorm1d(width), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)))
    return nn.Sequential(nn.Linear(into, width), *[block() for _ in range(blocks)], nn.BatchNorm1d(width), nn.ReLU(),
                         nn.Linear(width, 1))


class GatedUnits(nn.Module):
    def __init__(self, into, width, shared):
        super().__init__()
        self.width = width
        self.layers = nn.ModuleList(shared) if shared else nn.ModuleList(
            nn.Linear(a, 2 * width, bias=False) for a in (into, width))
        self.norms = nn.ModuleList(nn.BatchNorm1d(2 * width) for _ in self.layers)

    def forward(self, x, skip=False):
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            y = F.glu(norm(layer(x)), 1)
            x = (x + y) * 0.5**0.5 if skip or i else y
        return x


class TabNet(nn.Module):
    """Steps that each choose features by a mask; softmax in the place of sparsemax."""

    def __init__(self, into=32, width=8, steps=3, out=2, gamma=1.3):
        super().__init__()
        self.width, self.gamma = width, gamma
        shared = [nn.Linear(a, 4 * width, bias=False) for a in (into, 2 * width)]
        self.norm = nn.BatchNorm1d(into)
        self.shared = nn.ModuleList(GatedUnits(into, 2 * width, shared) for _ in range(steps + 1))
        self.own = nn.ModuleList(GatedUnits(2 * width, 2 * width, None) for _ in range(steps + 1))
        self.attend = nn.ModuleList(nn.Sequential(nn.Linear(width, into, bias=False), nn.BatchNorm1d(into))
                                    for _ in range(steps))
        self.out = nn.Linear(width, out)

    def forward(self, x):
        x = self.norm(x)
        transform = lambda i, y: self.own[i](self.shared[i](y), True)  # noqa: E731
        state, prior, total = transform(0, x)[:, self.width:], torch.ones_like(x), 0
        for i, attend in enumerate(self.attend):
            mask = (attend(state) * prior).softmax(1)
            prior = prior * (self.gamma - mask)
            y = transform(i + 1, x * mask)
            total, state = total + F.relu(y[:, : self.width]), y[:, self.width:]
        return self.out(total)


class FtTransformer(nn.Module):
    """A token for each feature, a transformer over them."""

    def __init__(self, into=32, width=192, heads=8, blocks=3):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(into, width)), nn.Parameter(torch.randn(into, width))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        feed = lambda: nn.Sequential(  # noqa: E731
            nn.LayerNorm(width), nn.Linear(width, 512), nn.GLU(), nn.Linear(256, width))
        attend = lambda: nn.Sequential(nn.LayerNorm(width), Attention(width, heads))  # noqa: E731
        self.blocks = nn.Sequential(*[nn.Sequential(Residual(attend()), Residual(feed())) for _ in range(blocks)])
        self.out = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        x = x.unsqueeze(2) * self.weight + self.bias
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        return self.out(self.blocks(x)[:, 0])


def table(rows, width):
    """Rows as small as training makes them: of large ones, every answer would be 0 or 1."""
    embedding = nn.Embedding(rows, width)
    nn.init.normal_(embedding.weight, std=0.1)
    return embedding


class Dlrm(nn.Module):
    """Clicks: 13 numbers, 26 categories, products of all pairs."""

    def __init__(self, rows=10000, width=16, tables=26):
        super().__init__()

        def chain(*widths):
            pairs = zip(widths, widths[1:])
            return nn.Sequential(*[layer for a, b in pairs for layer in (nn.Linear(a, b), nn.ReLU())])

        self.tables = nn.ModuleList(table(rows, width) for _ in range(tables))
        self.bottom = chain(13, 512, 256, 64, width)
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(chain(width + pairs, 512, 256), nn.Linear(256, 1), nn.Sigmoid())
        self.register_buffer("lower", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, numbers, categories):
        x = self.bottom(numbers)
        rows = torch.stack([x] + [table(categories[:, i]) for i, table in enumerate(self.tables)], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.lower[0], self.lower[1]]], 1))


class CrossNetwork(nn.Module):
    """DCN v2: crosses of full matrices beside a perceptron."""

    def __init__(self, fields=26, rows=10000, width=16, numbers=13, crosses=3):
        super().__init__()
        self.table, into = table(rows, width), fields * width + numbers
        self.crosses = nn.ModuleList(nn.Linear(into, into) for _ in range(crosses))
        self.deep = nn.Sequential(nn.Linear(into, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
        self.out = nn.Linear(into + 128, 1)

    def forward(self, numbers, categories):
        first = torch.cat([self.table(categories).flatten(1), numbers], 1)
        x = first
        for cross in self.crosses:
            x = first * cross(x) + x
        return self.out(torch.cat([x, self.deep(first)], 1)).sigmoid()
