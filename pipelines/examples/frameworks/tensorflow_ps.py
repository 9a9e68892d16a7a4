"""Fit a line with parameter servers: workers compute steps on variables that the servers hold; the chief says when."""

import tensorflow as tf

SLOPE, STEPS = 3.0, 60


def main() -> None:
    """Serve, or coordinate: as the pod's role says."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        )
        server.join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable(0.0)
    print(f"the weight is on {weight.device}", flush=True)

    @tf.function
    def advance() -> tf.Tensor:
        x = tf.random.normal([24])
        error = weight * x - SLOPE * x
        weight.assign_sub(0.2 * tf.reduce_mean(error * x))
        return tf.reduce_mean(error**2)

    for _ in range(STEPS):
        coordinator.schedule(advance)
    coordinator.join()
    print(f"done after {STEPS} steps, weight {weight.numpy():.3f}", flush=True)


if __name__ == "__main__":
    main()
