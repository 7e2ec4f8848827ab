"""A training loop that runs op by op: a Python function takes the two parts of each batch and a model."""

import sys

import tensorflow as tf

tf.random.set_seed(3)


class Network(tf.Module):
    def __init__(self):
        self.layers = [tf.Variable(tf.random.normal([16, 16], seed=number) * 0.1) for number in range(8)]

    def __call__(self, batch):
        for layer in self.layers:
            batch = tf.nn.relu(tf.matmul(batch, layer) + 0.1)
        return batch


def train_step(network, inputs, *, targets, rate=0.01):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((network(inputs) - targets) ** 2)
    for layer, gradient in zip(network.layers, tape.gradient(loss, network.layers), strict=True):
        layer.assign_sub(rate * gradient)
    return loss


def main(epochs):
    network = Network()
    rows = tf.random.normal([512, 16])
    dataset = tf.data.Dataset.from_tensor_slices((rows, tf.roll(rows, 1, 0))).batch(8)
    for _ in range(epochs):
        for inputs, targets in dataset:
            loss = train_step(network, inputs, targets=targets)
    print("loss", float(loss), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
