{{/* What all pods have in common. Each takes (list root role). */}}

{{/* Of (list root role), or of a client's pod, (list root "tools" component). */}}
{{- define "dodona.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
labels:
  {{- include "dodona.podLabels" (list $root (last .)) | nindent 2 }}
  {{- if eq (index . 1) "tools" }}
  {{- include "dodona.clientLabel" $root | nindent 2 }}
  {{- end }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Without service links: of a Service called dodona-master they would make the variable
DODONA_MASTER_PORT, which is a setting, and tcp://... is no port. */}}
{{- define "dodona.podSpec" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $values := index $root.Values $role -}}
serviceAccountName: {{ include "dodona.serviceAccountName" $root | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $root.Values.user.runAsUser | int64 }}
  runAsGroup: {{ $root.Values.user.runAsGroup | int64 }}
  fsGroup: {{ $root.Values.user.fsGroup | int64 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with $values.scheduling.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.scheduling.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.scheduling.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := merge (dict) $values.scheduling.affinity (include "dodona.antiAffinity" . | fromYaml) }}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $values.antiAffinity }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "dodona.selector" . | nindent 8 }}
{{- end }}
{{- end -}}

{{- define "dodona.antiAffinity" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
{{- if eq (default "none" $values.antiAffinity) "required" }}
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "dodona.selector" . | nindent 10 }}
{{- else if eq (default "none" $values.antiAffinity) "preferred" }}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "dodona.selector" . | nindent 12 }}
{{- end }}
{{- end -}}

{{/* Of a Deployment. Where two never share a machine a new pod finds none before an old one has gone. */}}
{{- define "dodona.strategy" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
{{- if eq $values.antiAffinity "required" -}}
rollingUpdate: {maxUnavailable: 1, maxSurge: 0}
{{- else -}}
rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
{{- end -}}
{{- end -}}

{{- define "dodona.container" -}}
{{- $root := index . 0 -}}
image: {{ include "dodona.image" . | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- with (index $root.Values (index . 1)).resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Settings of a process, as its environment. Large numbers must not become 1e+09. */}}
{{- define "dodona.settings" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $logs := dict "log_format" $root.Values.logs.format "log_level" $root.Values.logs.level -}}
{{- range $name, $value := merge (dict) (index $root.Values $role).settings $logs }}
- name: DODONA_{{ upper $role }}_{{ upper $name }}
  value: {{ ternary (printf "%.0f" $value) (toString $value) (kindIs "float64" $value) | quote }}
{{- end }}
{{- with $root.Values.tracing }}
{{- if and .url .existingSecret (has $role (list "node" "gateway")) }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret | quote }}
      key: {{ .key | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Until a process has started it is neither ready nor stuck: a log may be long. */}}
{{- define "dodona.probes" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $scheme := ternary (include "dodona.gatewayScheme" $root | upper) "HTTP" (eq $role "gateway") -}}
{{- $seconds := default 120 (index $root.Values $role).startupSecondsMax | int -}}
startupProbe:
  httpGet: {path: /startupz, port: rest, scheme: {{ $scheme }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ max 1 (div $seconds 2) }}
readinessProbe:
  httpGet: {path: /readyz, port: rest, scheme: {{ $scheme }}}
  periodSeconds: 3
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /healthz, port: rest, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{/* Of (list root secret key folder): one file of a Secret. */}}
{{- define "dodona.secretVolume" -}}
secret:
  secretName: {{ index . 1 | quote }}
  defaultMode: 0440
  items:
    - key: {{ index . 2 | quote }}
      path: {{ index . 3 }}
{{- end -}}

{{/* Arguments, mounts and volumes of every server. */}}
{{- define "dodona.serverArguments" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
- "--host={{ include "dodona.listen" $root }}"
- "--port={{ include "dodona.port" . }}"
- "--cluster-key-file=/etc/dodona/cluster-key/key"
{{- if $root.Values.metrics.existingSecret }}
- "--metrics-key-file=/etc/dodona/metrics-key/key"
{{- end }}
{{- with $root.Values.tracing }}
{{- if and .url (has $role (list "node" "gateway")) }}
- {{ printf "--trace-url=%s" .url | quote }}
- "--trace-ratio={{ .ratio }}"
{{- end }}
{{- end }}
{{- if ne $role "master" }}
- "--master-url={{ include "dodona.masterUrl" $root }}"
{{- end }}
{{- end -}}

{{- define "dodona.serverMounts" -}}
{{- $root := index . 0 -}}
- {name: tmp, mountPath: /tmp}
- {name: cluster-key, mountPath: /etc/dodona/cluster-key, readOnly: true}
{{- if $root.Values.metrics.existingSecret }}
- {name: metrics-key, mountPath: /etc/dodona/metrics-key, readOnly: true}
{{- end }}
{{- end -}}

{{- define "dodona.serverVolumes" -}}
{{- $root := index . 0 -}}
{{- $key := $root.Values.clusterKey -}}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
- name: cluster-key
  {{- include "dodona.secretVolume" (list $root $key.existingSecret $key.key "key") | nindent 2 }}
{{- with $root.Values.metrics }}
{{- if .existingSecret }}
- name: metrics-key
  {{- include "dodona.secretVolume" (list $root .existingSecret .key "key") | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Of (list root role): the claim of each pod of a StatefulSet. Its labels can't ever change. */}}
{{- define "dodona.claim" -}}
{{- $storage := (index (index . 0).Values (index . 1)).storage -}}
metadata:
  name: data
  labels:
    {{- include "dodona.selector" . | nindent 4 }}
  {{- with $storage.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  accessModes: [{{ $storage.accessMode }}]
  {{- with $storage.storageClassName }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ $storage.size }}
{{- end -}}

{{- define "dodona.disruptionBudget" -}}
{{- $root := index . 0 -}}
{{- $budget := (index $root.Values (index . 1)).disruptionBudget -}}
{{- if $budget.enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "dodona.fullname" $root }}-{{ index . 1 }}
  labels:
    {{- include "dodona.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $budget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow # what serves nobody must not hold up a drain
  selector:
    matchLabels:
      {{- include "dodona.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- define "dodona.autoscaler" -}}
{{- $root := index . 0 -}}
{{- $scaling := (index $root.Values (index . 1)).autoscaling -}}
{{- if $scaling.enabled }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "dodona.fullname" $root }}-{{ index . 1 }}
  labels:
    {{- include "dodona.labels" . | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "dodona.fullname" $root }}-{{ index . 1 }}
  minReplicas: {{ $scaling.minReplicas }}
  maxReplicas: {{ max $scaling.minReplicas $scaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ $scaling.targetCpuPercent }}
{{- end }}
{{- end -}}

{{/* Of (list root role): the port of the collector's pods, if this role sends traces there. (Master and proxies make
none: an answer of theirs is for many callers.) */}}
{{- define "dodona.traces" -}}
{{- $endpoint := (index . 0).Values.tracing.url -}}
{{- $given := (index . 0).Values.networkPolicy.tracingPort | int -}}
{{- if and $endpoint (has (index . 1) (list "node" "gateway")) -}}
{{- $url := urlParse $endpoint -}}
{{- $named := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $known := ternary "443" "80" (eq $url.scheme "https") -}}
{{- ternary $given (default $known $named) (gt $given 0) -}}
{{- end -}}
{{- end -}}

{{/* What a client needs: where the master is, and the key. */}}
{{- define "dodona.clientEnvironment" -}}
- name: DODONA_URL
  value: {{ include "dodona.masterUrl" . }}
- name: DODONA_CLUSTER_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .Values.clusterKey.existingSecret | quote }}
      key: {{ .Values.clusterKey.key | quote }}
{{- end -}}

{{/* From the signal to stop to the end, s: what is under way is finished meanwhile; then connections
close, for 5 s at most, and the log; the rest is for a disk that is slow. */}}
{{- define "dodona.graceSeconds" -}}
{{- $settings := (index (index . 0).Values (index . 1)).settings -}}
{{- $drain := get $settings "drain_ms" | default 0 | int -}}
{{- $finish := get $settings "finish_ms_max" | default 5000 | int -}}
{{- add (div (add $drain $finish) 1000) 20 -}}
{{- end -}}
