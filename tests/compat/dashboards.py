"""Queries of known dashboards for Kafka, as expressions of their metrics: one of each panel and of each variable.

The selectors are those of the dashboards, with their variables replaced by the labels of the test's targets.
"""

from __future__ import annotations

CLUSTER = 'namespace="ns",strimzi_io_cluster="c"'
POD = f'{CLUSTER},kubernetes_pod_name=~"c-kafka-.*"'
_TOPIC = f'{POD},topic=~".+",topic!=""'
_IN_NAMESPACE = 'topic=~".+",namespace=~"ns"'
_OF_GROUPS = f'consumergroup=~".+",{_IN_NAMESPACE}'

KAFKA_EXPORTER = (
    'sum(rate(kafka_topic_partition_current_offset{instance="gregor",topic=~".+"}[1m])) by (topic)',
    'sum(kafka_consumergroup_lag{instance="gregor",topic=~".+"}) by (consumergroup, topic)',
    'sum(delta(kafka_topic_partition_current_offset{instance="gregor",topic=~".+"}[5m])/5) by (topic)',
    'sum(delta(kafka_consumergroup_current_offset{instance="gregor",topic=~".+"}[5m])/5) by (consumergroup, topic)',
    'sum by (topic) (kafka_topic_partitions{instance="gregor",topic=~".+"})',
    'kafka_consumergroup_current_offset{job=~"gregor"}',
    'kafka_topic_partition_current_offset{instance="gregor",topic!="__consumer_offsets",topic!="--kafka"}',
)
"""Grafana 7589. A kafka_exporter shows a whole cluster as one instance, as a rule of docs/metrics.md does here."""

_TRAFFIC = (
    "bytesin",
    "bytesout",
    "messagesin",
    "totalproducerequests",
    "failedproducerequests",
    "totalfetchrequests",
    "failedfetchrequests",
)
STRIMZI_KAFKA = (
    f"count(kafka_server_replicamanager_leadercount{{{CLUSTER}}})",
    f"sum(kafka_controller_kafkacontroller_activecontrollercount{{{CLUSTER}}})",
    f"sum(irate(kafka_controller_controllerstats_uncleanleaderelections_total{{{CLUSTER}}}[5m]))",
    f"sum(kafka_server_replicamanager_partitioncount{{{CLUSTER}}})",
    f"sum(kafka_server_replicamanager_underreplicatedpartitions{{{CLUSTER}}})",
    f"sum(kafka_cluster_partition_atminisr{{{CLUSTER}}})",
    f"sum(kafka_cluster_partition_underminisr{{{CLUSTER}}})",
    f"sum(kafka_controller_kafkacontroller_offlinepartitionscount{{{CLUSTER}}})",
    f'sum(process_open_fds{{{POD},container="kafka"}}) by (kubernetes_pod_name)',
    *(f"sum(irate(kafka_server_brokertopicmetrics_{name}_total{{{_TOPIC}}}[5m]))" for name in _TRAFFIC),
    f"sum(kafka_network_socketserver_networkprocessoravgidle_percent{{{POD}}}*100) by (kubernetes_pod_name)",
    f"sum(kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{{{POD}}}*100) by (kubernetes_pod_name)",
    f"sum(irate(kafka_server_kafkaserver_linux_disk_write_bytes{{{POD}}}[5m])) by (kubernetes_pod_name)",
    f"sum(irate(kafka_server_kafkaserver_linux_disk_read_bytes{{{POD}}}[5m])) by (kubernetes_pod_name)",
    f"sum(kafka_server_socket_server_metrics_connection_count{{{POD}}}) by (kubernetes_pod_name, listener)",
    f'kafka_log_log_size{{{POD},topic=~".+",partition=~".+"}}',
    f"kafka_cluster_partition_replicascount{{{POD}}}",
)
STRIMZI_KAFKA_EXPORTER = (
    f"count(kafka_topic_partitions{{{_IN_NAMESPACE}}})",
    f"sum(kafka_topic_partitions{{{_IN_NAMESPACE}}}) by (topic)",
    f"sum(kafka_topic_partition_replicas{{{_IN_NAMESPACE}}})",
    f"sum(kafka_topic_partition_in_sync_replica{{{_IN_NAMESPACE}}})",
    f"sum(kafka_topic_partition_under_replicated_partition{{{_IN_NAMESPACE}}})",
    f"sum(kafka_cluster_partition_atminisr{{{_IN_NAMESPACE}}})",
    f"sum(kafka_cluster_partition_underminisr{{{_IN_NAMESPACE}}})",
    f"sum(kafka_topic_partition_leader_is_preferred{{{_IN_NAMESPACE}}} < bool 1)",
    f"sum(rate(kafka_topic_partition_current_offset{{{_IN_NAMESPACE}}}[5m])) by (topic)",
    f"sum(delta(kafka_consumergroup_current_offset{{{_OF_GROUPS}}}[5m])/300) by (consumergroup, topic)",
    f"sum(kafka_consumergroup_lag{{{_OF_GROUPS}}}) by (consumergroup, partition, topic)",
    f"sum(kafka_consumergroup_current_offset{{{_OF_GROUPS}}}) by (consumergroup, partition, topic)",
    f"sum(kafka_topic_partition_oldest_offset{{{_IN_NAMESPACE}}}) by (partition, topic)",
    "kafka_broker_info",
)
STRIMZI_ALERTS = (
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_log_logmanager_offlinelogdirectorycount",
    "sum(kafka_controller_kafkacontroller_activecontrollercount) by (namespace)",
    "kafka_topic_partition_under_replicated_partition",
    "changes(kafka_topic_partition_current_offset[10m])",
)
_LAG_CLUSTER = 'namespace="ns",cluster_name="c"'
_LAG_GROUPS = f'{_LAG_CLUSTER},group=~".+",group!=""'
KAFKA_LAG_EXPORTER = (
    f"topk(50, kafka_consumergroup_group_max_lag_seconds{{{_LAG_GROUPS}}})",
    f"topk(25, kafka_consumergroup_group_lag_seconds{{{_LAG_GROUPS}}})",
    f"topk(50, kafka_consumergroup_group_max_lag{{{_LAG_GROUPS}}})",
    f"topk(25, kafka_consumergroup_group_lag{{{_LAG_GROUPS}}})",
    f"kafka_consumergroup_group_max_lag_seconds{{{_LAG_GROUPS}}}",
    f"kafka_consumergroup_group_max_lag{{{_LAG_GROUPS}}}",
    f"max(kafka_consumergroup_group_lag_seconds{{{_LAG_GROUPS}}}) by (group)",
    f"sum(kafka_consumergroup_group_offset{{{_LAG_GROUPS}}})",
    f"sum((kafka_consumergroup_group_offset{{{_LAG_GROUPS}}} * 0) + on(namespace,cluster_name,topic,partition)"
    f" group_left() kafka_partition_latest_offset{{{_LAG_CLUSTER}}})",
    f"kafka_consumergroup_group_lag{{{_LAG_CLUSTER}}}",
)
"""The names that are not in /metrics come from the recording rules of docs/metrics.md."""
OTHERS = ("sum(kafka_server_delayedoperationpurgatory_purgatorysize) by (delayedOperation)",)
"""Of dashboards that read Kafka by the JMX exporter, with the label that it leaves in mixed case."""

WITHOUT_DATA = (
    "container_cpu_usage_seconds_total",
    "container_memory_usage_bytes",
    "jvm_gc_collection_seconds_count",
    "jvm_gc_collection_seconds_sum",
    "jvm_memory_bytes_used",
    "jvm_memory_used_bytes",
    "jvm_threads_current",
    "kubelet_volume_stats_available_bytes",
)
"""Names in queries of Strimzi's and kafka-lag-exporter's dashboards about a JVM and about containers; docs/metrics.md
has the same list."""
