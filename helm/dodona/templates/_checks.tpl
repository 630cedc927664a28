{{/* What values.schema.json can't say: values that do not go together. */}}
{{- define "dodona.checks" -}}
{{- $values := .Values -}}
{{- $name := include "dodona.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "fullnameOverride: Services can't be named after %q: it takes small letters, digits and dashes, with a letter first" $name) }}
{{- end }}
{{- include "dodona.settingsChecks" . }}
{{- include "dodona.serviceChecks" . }}
{{- range $role := list "proxy" "gateway" }}
{{- with (index $values $role).autoscaling }}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}
{{- fail (printf "%s.autoscaling: minReplicas is more than maxReplicas" $role) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.existingSecret) }}
{{- fail "metrics.serviceMonitor: /metrics takes a key; make a Secret with one and name it in metrics.existingSecret" }}
{{- end }}
{{- if and .Values.backup.enabled (not .Values.backup.existingClaim) }}
{{- fail "backup: name a PersistentVolumeClaim for the backups in backup.existingClaim" }}
{{- end }}
{{- $monitor := .Values.metrics.serviceMonitor }}
{{- if gt (include "dodona.seconds" $monitor.scrapeTimeout | int) (include "dodona.seconds" $monitor.interval | int) }}
{{- fail "metrics.serviceMonitor: a scrape has less time than interval, so scrapeTimeout can't be more" }}
{{- end }}
{{- if and .Values.gateway.ingress.enabled (not .Values.gateway.ingress.hosts) }}
{{- fail "gateway.ingress: name the hosts in gateway.ingress.hosts" }}
{{- end }}
{{- if and .Values.networkPolicy.enabled .Values.tracing.url (not .Values.networkPolicy.tracing) }}
{{- fail "tracing: say in networkPolicy.tracing where the collector is, or no pod reaches it" }}
{{- end }}
{{- end -}}

{{/* What the servers themselves refuse, once they are there. */}}
{{- define "dodona.settingsChecks" -}}
{{- $master := .Values.master.settings -}}
{{- /* The defaults are the master's own. */ -}}
{{- if ge (get $master "renew_ms" | default 200 | int) (get $master "window_ms" | default 400 | int) }}
{{- fail "master.settings: renew_ms must be less than window_ms" }}
{{- end }}
{{- with .Values.gateway.audit }}
{{- if and .enabled (lt (include "dodona.mib" .sizeLimit | int64) 4) }}
{{- fail "gateway.audit: a sizeLimit of less than 4Mi holds no two files" }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What Kubernetes takes with other types of Services only. */}}
{{- define "dodona.serviceChecks" -}}
{{- with .Values.gateway.service }}
{{- if and .externalTrafficPolicy (eq .type "ClusterIP") }}
{{- fail "gateway.service: externalTrafficPolicy goes with type NodePort or LoadBalancer" }}
{{- end }}
{{- if and .loadBalancerSourceRanges (ne .type "LoadBalancer") }}
{{- fail "gateway.service: loadBalancerSourceRanges go with type LoadBalancer" }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Of a span of time such as 30s or 2m. */}}
{{- define "dodona.seconds" -}}
{{- $number := regexFind "^[0-9]+" . | int -}}
{{- mul $number (ternary 60 1 (hasSuffix "m" .)) -}}
{{- end -}}

{{/* Of a size such as 1Gi. */}}
{{- define "dodona.mib" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- mul $number (get (dict "Mi" 1 "Gi" 1024 "Ti" 1048576 "Pi" 1073741824) (regexFind "[A-Z]i$" .)) -}}
{{- end -}}
