{{/* The metrics API: the enabled groups, their APIServices, and conflicts with other providers. */}}

{{/* The enabled groups by name; each with the key of its switch in the values, and its versions with their priorities. */}}
{{- define "tidegate.metricsGroups" -}}
{{- if .Values.metricsApi.external.enabled }}
external.metrics.k8s.io: {switch: external, versions: {v1beta1: 100}}
{{- end }}
{{- if .Values.metricsApi.custom.enabled }}
custom.metrics.k8s.io: {switch: custom, versions: {v1beta2: 200, v1beta1: 100}}
{{- end }}
{{- end }}

{{/* "yes" if any is enabled, otherwise empty. */}}
{{- define "tidegate.metricsApi" -}}
{{- if or .Values.metricsApi.external.enabled .Values.metricsApi.custom.enabled }}yes{{ end }}
{{- end }}

{{/* The Service of an APIService as namespace/name; empty if it has none. Takes the object. */}}
{{- define "tidegate.forwardsTo" -}}
{{- with dig "spec" "service" dict . }}{{ .namespace }}/{{ .name }}{{ end }}
{{- end }}

{{/* Fails if the APIService exists and belongs to another provider. Takes `root`, `switch` and `found`, the object. */}}
{{- define "tidegate.refuseAnothers" -}}
{{- if .found }}
{{- $provider := include "tidegate.forwardsTo" .found }}
{{- $ours := printf "%s/%s" .root.Release.Namespace (include "tidegate.fullname" .root) }}
{{- if ne $provider $ours }}
{{- fail (printf "metricsApi.%s.enabled: must be false: the APIService %s is there already and belongs to %s, and a cluster has one provider of it; remove that one first, or keep it as the provider" .switch .found.metadata.name (default "the API server itself" $provider)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes `root` and `caBundle`: base64 of the CA's PEM file, or empty if cert-manager injects it. */}}
{{- define "tidegate.apiServices" -}}
{{- $root := .root }}
{{- $caBundle := .caBundle }}
{{- range $group, $served := include "tidegate.metricsGroups" $root | fromYaml }}
{{- range $version, $priority := $served.versions }}
{{- $name := printf "%s.%s" $version $group }}
{{- $found := lookup "apiregistration.k8s.io/v1" "APIService" "" $name }}
{{- include "tidegate.refuseAnothers" (dict "root" $root "switch" $served.switch "found" $found) }}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: {{ $name }}
  labels:
    {{- include "tidegate.labels" $root | nindent 4 }}
  {{- if not $caBundle }}
  annotations:
    cert-manager.io/inject-ca-from: {{ $root.Release.Namespace }}/{{ include "tidegate.serverSecret" $root }}
  {{- end }}
spec:
  group: {{ $group }}
  version: {{ $version }}
  groupPriorityMinimum: 100
  versionPriority: {{ $priority }}
  service:
    namespace: {{ $root.Release.Namespace }}
    name: {{ include "tidegate.fullname" $root }}
    port: {{ $root.Values.metricsApi.port }}
  {{- with $caBundle }}
  caBundle: {{ . }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
