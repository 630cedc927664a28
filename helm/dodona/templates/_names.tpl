{{/* What objects are called, the labels they have, and where processes are reached. */}}

{{/* So short that the longest name made of it, a backup's pod, is a label still. */}}
{{- define "dodona.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if not (contains $name .Release.Name) -}}
{{- $name = printf "%s-%s" .Release.Name $name -}}
{{- else -}}
{{- $name = .Release.Name -}}
{{- end -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Of (list root role): these never change, as the selectors of what runs can't. */}}
{{- define "dodona.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Of pods: no version of the chart, as each new label starts them all again. */}}
{{- define "dodona.podLabels" -}}
app.kubernetes.io/part-of: dodona
{{ include "dodona.selector" . }}
{{- end -}}

{{- define "dodona.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{ include "dodona.podLabels" . }}
{{- end -}}

{{/* A pod with this label may speak to master, proxies and nodes: those of commands have it. */}}
{{- define "dodona.clientLabel" -}}
dodona-client: {{ include "dodona.fullname" . | quote }}
{{- end -}}

{{- define "dodona.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "dodona.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Of (list root role): the port of its REST and of its data plane. */}}
{{- define "dodona.port" -}}
{{- index (dict "master" 8500 "proxy" 8501 "node" 8502 "gateway" 8502) (index . 1) -}}
{{- end -}}

{{/* Of (list root role): its Service's name in DNS. */}}
{{- define "dodona.host" -}}
{{- $root := index . 0 -}}
{{ include "dodona.fullname" $root }}-{{ index . 1 }}.{{ $root.Release.Namespace }}.svc
{{- end -}}

{{- define "dodona.masterUrl" -}}
http://{{ include "dodona.host" (list . "master") }}:{{ include "dodona.port" (list . "master") }}
{{- end -}}

{{- define "dodona.gatewayScheme" -}}
{{- ternary "https" "http" (not (empty .Values.gateway.tls.existingSecret)) -}}
{{- end -}}

{{- define "dodona.gatewayUrl" -}}
{{ include "dodona.gatewayScheme" . }}://{{ include "dodona.host" (list . "gateway") }}:{{ .Values.gateway.service.port }}
{{- end -}}

{{/* What a process listens on: all of its pod. */}}
{{- define "dodona.listen" -}}
{{- ternary "::" "0.0.0.0" (eq .Values.ipFamily "IPv6") -}}
{{- end -}}

{{/* The pod's own address, as a URL has it. */}}
{{- define "dodona.podHost" -}}
{{- ternary "[$(POD_IP)]" "$(POD_IP)" (eq .Values.ipFamily "IPv6") -}}
{{- end -}}

{{/* Of (list root role): registry/repository:tag. */}}
{{- define "dodona.image" -}}
{{- $root := index . 0 -}}
{{- $image := (index $root.Values (index . 1)).image -}}
{{- $tag := default (default $root.Chart.AppVersion $root.Values.image.tag) $image.tag -}}
{{- if $root.Values.image.registry }}{{ $root.Values.image.registry }}/{{ end }}{{ $image.repository }}:{{ $tag }}
{{- end -}}
