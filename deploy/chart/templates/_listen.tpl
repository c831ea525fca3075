{{/* `listen` of the configuration, as YAML: the chart writes this part. */}}
{{- define "tidegate.listen" -}}
{{- $listen := dict "http" (printf "%s:8080" .Values.listenHost) "grpc" (printf "%s:6000" .Values.listenHost) }}
{{- with .Values.httpHosts }}
  {{- $_ := set $listen "http_hosts" . }}
{{- end }}
{{- if eq .Values.mode "hpa" }}
  {{- /* Tidegate always listens for gRPC. Without KEDA the port is reachable only inside the pod. */}}
  {{- $_ := set $listen "grpc" "127.0.0.1:6000" }}
{{- end }}
{{- if include "tidegate.tls" . }}
  {{- $files := dict "certificate" "/etc/tidegate/tls/tls.crt" "key" "/etc/tidegate/tls/tls.key" "client_ca" "/etc/tidegate/tls/ca.crt" }}
  {{- $_ := set $listen "grpc_tls" $files }}
{{- end }}
{{- if include "tidegate.metricsApi" . }}
  {{- $api := dict "address" (printf "%s:%d" .Values.listenHost (int .Values.metricsApi.port)) }}
  {{- $_ := set $api "certificate" "/etc/tidegate/tls/tls.crt" }}
  {{- $_ := set $api "key" "/etc/tidegate/tls/tls.key" }}
  {{- $_ := set $api "service" (printf "%s.%s" (include "tidegate.fullname" .) .Release.Namespace) }}
  {{- $_ := set $api "external" .Values.metricsApi.external.enabled }}
  {{- $_ := set $api "custom" .Values.metricsApi.custom.enabled }}
  {{- $_ := set $listen "metrics_api" $api }}
{{- end }}
{{- if include "tidegate.peers" . }}
  {{- $peers := dict "address" (printf "%s:8444" .Values.listenHost) }}
  {{- $_ := set $peers "certificate" "/etc/tidegate/tls/tls.crt" }}
  {{- $_ := set $peers "key" "/etc/tidegate/tls/tls.key" }}
  {{- $_ := set $peers "ca" "/etc/tidegate/tls/ca.crt" }}
  {{- $_ := set $peers "server_name" (include "tidegate.hosts" . | fromYamlArray | first) }}
  {{- $_ := set $peers "lease" (printf "%s.%s" (include "tidegate.fullname" .) .Release.Namespace) }}
  {{- $_ := set $listen "peers" $peers }}
{{- end }}
{{- toYaml $listen }}
{{- end }}
