{{/* What values.schema.json can't say: values that do not go together. */}}
{{- define "dodona.checks" -}}
{{- $values := .Values -}}
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
{{- if and .Values.gateway.ingress.enabled (not .Values.gateway.ingress.hosts) }}
{{- fail "gateway.ingress: name the hosts in gateway.ingress.hosts" }}
{{- end }}
{{- if and .Values.networkPolicy.enabled .Values.tracing.url (not .Values.networkPolicy.tracing) }}
{{- fail "tracing: say in networkPolicy.tracing where the collector is, or no pod reaches it" }}
{{- end }}
{{- end -}}
