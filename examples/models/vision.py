"""Convolutional networks with seeded weights: ResNets, one with early exits, VGGs, U-Nets and LinkNet.

Every builder's defaults give the published shape. Its arguments can make smaller networks for tests.
"""

import numpy as np

from .builder import Builder


def _conv(b, x, c_in, c_out, kernel, stride=1, pad=0, bias=True):
    inputs = [x, b.weight(c_out, c_in, kernel, kernel)]
    if bias:
        inputs.append(b.weight(c_out, scale=0.01, name="bias"))
    return b.node("Conv", *inputs, kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[pad] * 4)


def _batch_norm(b, x, channels, gain=1.0):
    rng = b.rng
    vectors = [
        gain * rng.uniform(0.8, 1.2, channels),
        rng.normal(0, 0.1, channels),
        rng.normal(0, 0.1, channels),
        rng.uniform(0.8, 1.2, channels),
    ]
    return b.node(
        "BatchNormalization", x, *[b.constant(v.astype(np.float32), "bn") for v in vectors], epsilon=1e-5
    )


def _bottleneck(b, x, c_in, width, stride):
    y = b.node("Relu", _batch_norm(b, _conv(b, x, c_in, width, 1, bias=False), width))
    y = b.node("Relu", _batch_norm(b, _conv(b, y, width, width, 3, stride, 1, bias=False), width))
    c_out = 4 * width
    y = _batch_norm(b, _conv(b, y, width, c_out, 1, bias=False), c_out, gain=0.2)
    if stride != 1 or c_in != c_out:
        x = _batch_norm(b, _conv(b, x, c_in, c_out, 1, stride, bias=False), c_out)
    return b.node("Relu", b.node("Add", y, x)), c_out


def _stem(b, size, width=64):
    x = b.input("image", ["batch", 3, size, size])
    x = b.node("Relu", _batch_norm(b, _conv(b, x, 3, width, 7, 2, 3, bias=False), width))
    return b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)


def _classes(b, x, channels, classes, scale=None):
    x = b.node("Flatten", b.node("GlobalAveragePool", x), axis=1)
    return b.node("Gemm", x, b.weight(classes, channels, scale=scale), b.weight(classes, scale=0.01), transB=1)


def _resnet(name, blocks, seed, size, base, exits=()):
    b = Builder(name, seed)
    x, channels = _stem(b, size, base), base
    for level, count in enumerate(blocks):
        for i in range(count):
            x, channels = _bottleneck(b, x, channels, base << level, 2 if level > 0 and i == 0 else 1)
        if level in exits:
            scores = _classes(b, x, channels, 1000, scale=EXIT_GAIN / channels**0.5)
            b.output(b.node("Softmax", scores, axis=1), f"exit_{exits.index(level) + 1}", ["batch", 1000])
    b.output(_classes(b, x, channels, 1000), "logits", ["batch", 1000])
    return b.model()


def resnet50(seed=0, size=224, base=64):
    """ResNet-50 v1.5, input [batch, 3, 224, 224]. He et al. 2016, table 1."""
    return _resnet("resnet50", (3, 4, 6, 3), seed, size, base)


def resnet152(seed=0, size=224, base=64, blocks=(3, 8, 36, 3)):
    """ResNet-152 v1.5, input [batch, 3, 224, 224]. He et al. 2016, table 1."""
    return _resnet("resnet152", blocks, seed, size, base)


EXIT_GAIN = 4.0  # scale of an exit's weights: larger than usual, so that some of its answers are confident


def early_exit(seed=0, size=224, base=64, blocks=(3, 4, 6, 3)):
    """ResNet-50 with an exit behind its first group of blocks, as BranchyNet has them (Teerapittayanon et al. 2016):
    probabilities `exit_1` [batch, 1000] besides `logits`.

    Weights are seeded, not trained, so the exit's confidence depends on an image's contrast. For normal noise, the best
    class has less than 0.5. For the same noise 8 times as strong, it has more than 0.9.
    """
    return _resnet("early_exit", blocks, seed, size, base, exits=(0,))


def _vgg(name, seed, levels, size, base, dense):
    b = Builder(name, seed)
    x = b.input("image", ["batch", 3, size, size])
    channels = 3
    for level, convolutions in enumerate(levels):
        for _ in range(convolutions):
            width = base << min(level, 3)
            x = b.node("Relu", _conv(b, x, channels, width, 3, 1, 1))
            channels = width
        x = b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b.node("Flatten", x, axis=1)
    features = channels * (size >> len(levels)) ** 2
    for width in (dense, dense):
        x = b.node("Relu", b.node("Gemm", x, b.weight(width, features), b.weight(width, scale=0.01), transB=1))
        features = width
    x = b.node("Gemm", x, b.weight(1000, features), b.weight(1000, scale=0.01), transB=1)
    b.output(x, "logits", ["batch", 1000])
    return b.model()


def vgg16(seed=0, size=224, base=64, dense=4096):
    """VGG-16, input [batch, 3, 224, 224]. Simonyan and Zisserman 2015, configuration D."""
    return _vgg("vgg16", seed, (2, 2, 3, 3, 3), size, base, dense)


def vgg19(seed=0, size=224, base=64, dense=4096):
    """VGG-19, input [batch, 3, 224, 224]. Simonyan and Zisserman 2015, configuration E."""
    return _vgg("vgg19", seed, (2, 2, 4, 4, 4), size, base, dense)


def linknet(seed=0, height=256, width=256, base=64, classes=20):
    """LinkNet, input [batch, 3, height, width], multiples of 32. Chaurasia and Culurciello 2017, figures 1 and 2."""
    b = Builder("linknet", seed)
    norm = lambda x, channels: b.node("Relu", _batch_norm(b, x, channels))  # noqa: E731

    def residual(x, c_in, c_out, stride):
        y = norm(_conv(b, x, c_in, c_out, 3, stride, 1, bias=False), c_out)
        y = _batch_norm(b, _conv(b, y, c_out, c_out, 3, 1, 1, bias=False), c_out, gain=0.5)
        if stride != 1 or c_in != c_out:
            x = _batch_norm(b, _conv(b, x, c_in, c_out, 1, stride, bias=False), c_out)
        return b.node("Relu", b.node("Add", y, x))

    def enlarge(x, c_in, c_out, kernel):
        more = {"pads": [1] * 4, "output_padding": [1, 1]} if kernel == 3 else {}
        return b.node("ConvTranspose", x, b.weight(c_in, c_out, kernel, kernel, scale=(2 / (c_in * 2)) ** 0.5),
                      b.weight(c_out, scale=0.01), kernel_shape=[kernel] * 2, strides=[2, 2], **more)

    def decoder(x, c_in, c_out, stride):
        quarter = c_in // 4
        y = norm(_conv(b, x, c_in, quarter, 1, bias=False), quarter)
        y = enlarge(y, quarter, quarter, 3) if stride == 2 else _conv(b, y, quarter, quarter, 3, 1, 1)
        return norm(_conv(b, norm(y, quarter), quarter, c_out, 1, bias=False), c_out)

    x = b.input("image", ["batch", 3, height, width])
    x = norm(_conv(b, x, 3, base, 7, 2, 3, bias=False), base)
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    skips, channels = [x], base
    for level in range(4):
        x = residual(x, channels, base << level, 1 if level == 0 else 2)
        channels = base << level
        x = residual(x, channels, channels, 1)
        skips.append(x)
    for level in reversed(range(4)):
        below = base << max(level - 1, 0)
        x = b.node("Add", decoder(x, channels, below, 1 if level == 0 else 2), skips[level])
        channels = below
    x = norm(enlarge(x, channels, base // 2, 3), base // 2)
    x = norm(_conv(b, x, base // 2, base // 2, 3, 1, 1), base // 2)
    b.output(enlarge(x, base // 2, classes, 2), "classes", ["batch", classes, height, width])
    return b.model()


def unet_2015(seed=0, size=572, base=64, depth=4):
    """The U-Net of Ronneberger et al. 2015, figure 1: input [batch, 1, 572, 572], convolutions without padding, skip
    connections cropped, two classes of [388, 388]."""
    b = Builder("unet_2015", seed)

    def block(x, c_in, c_out):
        for _ in range(2):
            x = b.node("Relu", _conv(b, x, c_in, c_out, 3))
            c_in = c_out
        return x

    x = b.input("image", ["batch", 1, size, size])
    skips, channels, side = [], 1, size
    for level in range(depth):
        x, channels, side = block(x, channels, base << level), base << level, side - 4
        skips.append((x, side))
        if side % 2:
            raise ValueError(f"size {size}: level {level} would be pooled at {side}, which is odd; 572 and 188 are even")
        x, side = b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), side // 2
    x, channels, side = block(x, channels, base << depth), base << depth, side - 4
    for level in reversed(range(depth)):
        width, side = base << level, side * 2
        x = b.node("ConvTranspose", x, b.weight(channels, width, 2, 2), b.weight(width, scale=0.01),
                   kernel_shape=[2, 2], strides=[2, 2])
        skip, of = skips[level]
        edge = (of - side) // 2
        cropped = b.node("Slice", skip, b.ints(edge, edge), b.ints(edge + side, edge + side), b.ints(2, 3))
        x, channels, side = block(b.node("Concat", cropped, x, axis=1), 2 * width, width), width, side - 4
    b.output(_conv(b, x, channels, 2, 1), "classes", ["batch", 2, side, side])
    return b.model()


def unet(seed=0, size=128, base=32, depth=4):
    """A U-Net of `depth` levels with `base` channels at the top, input [batch, 3, size, size]."""
    b = Builder("unet", seed)

    def block(x, c_in, c_out):
        for _ in range(2):
            x = b.node("Relu", _batch_norm(b, _conv(b, x, c_in, c_out, 3, 1, 1, bias=False), c_out))
            c_in = c_out
        return x

    x = b.input("image", ["batch", 3, size, size])
    skips, channels = [], 3
    for level in range(depth):
        x = block(x, channels, base << level)
        channels = base << level
        skips.append(x)
        x = b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = block(x, channels, base << depth)
    channels = base << depth
    for level in reversed(range(depth)):
        width = base << level
        x = b.node(
            "ConvTranspose", x, b.weight(channels, width, 2, 2), b.weight(width, scale=0.01),
            kernel_shape=[2, 2], strides=[2, 2],
        )
        x = block(b.node("Concat", skips[level], x, axis=1), 2 * width, width)
        channels = width
    x = b.node("Sigmoid", _conv(b, x, channels, 1, 1))
    b.output(x, "mask", ["batch", 1, size, size])
    return b.model()
