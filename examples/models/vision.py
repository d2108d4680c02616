"""Convolutional networks with seeded weights: ResNet-50, VGG-16 and a U-Net."""

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


def resnet50(seed=0):
    """ResNet-50 v1.5, input [batch, 3, 224, 224]. He et al. 2016, table 1."""
    b = Builder("resnet50", seed)
    x = b.input("image", ["batch", 3, 224, 224])
    x = b.node("Relu", _batch_norm(b, _conv(b, x, 3, 64, 7, 2, 3, bias=False), 64))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for width, blocks, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
        for i in range(blocks):
            x, channels = _bottleneck(b, x, channels, width, stride if i == 0 else 1)
    x = b.node("Flatten", b.node("GlobalAveragePool", x), axis=1)
    x = b.node("Gemm", x, b.weight(1000, channels), b.weight(1000, scale=0.01), transB=1)
    b.output(x, "logits", ["batch", 1000])
    return b.model()


def vgg16(seed=0):
    """VGG-16, input [batch, 3, 224, 224]. Simonyan and Zisserman 2015, configuration D."""
    b = Builder("vgg16", seed)
    x = b.input("image", ["batch", 3, 224, 224])
    channels = 3
    for width, convolutions in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]:
        for _ in range(convolutions):
            x = b.node("Relu", _conv(b, x, channels, width, 3, 1, 1))
            channels = width
        x = b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b.node("Flatten", x, axis=1)
    features = 512 * 7 * 7
    for width in (4096, 4096):
        x = b.node("Relu", b.node("Gemm", x, b.weight(width, features), b.weight(width, scale=0.01), transB=1))
        features = width
    x = b.node("Gemm", x, b.weight(1000, features), b.weight(1000, scale=0.01), transB=1)
    b.output(x, "logits", ["batch", 1000])
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
