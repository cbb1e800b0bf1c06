{{- /*
Copyright The Sandlot Authors.
SPDX-License-Identifier: Apache-2.0
*/}}

{{- /*
Labels of all objects, besides those of the install.
*/}}
{{- define "sandlot.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /*
The name of an image: the root, the values of an image, and the repository and the tag where
these are empty. Without a tag it is one of our own, which has the version of the chart.
*/}}
{{- define "sandlot.image" -}}
{{- $root := index . 0 }}
{{- $image := index . 1 }}
{{- $repository := $image.repository | default (index . 2) }}
{{- if not (contains "/" $repository) }}
{{- $repository = printf "%s/%s" $root.Values.image.registry $repository }}
{{- end }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest | quote }}
{{- else }}
{{- printf "%s:%s" $repository ($image.tag | default (index . 3) | default $root.Chart.AppVersion) | quote }}
{{- end }}
{{- end }}

{{- /*
What the API server is told of an etcd of the user's, and the name of that ConfigMap. The name
changes with the content, so that pods are replaced.
*/}}
{{- define "sandlot.etcdConfig" -}}
servers: {{ join "," .Values.etcd.external.endpoints | quote }}
prefix: {{ .Values.etcd.external.prefix | quote }}
{{- end }}

{{- define "sandlot.etcdConfigMap" -}}
sandlot-etcd-{{ include "sandlot.etcdConfig" . | sha256sum | trunc 10 }}
{{- end }}

{{- /*
The ports of that etcd.
*/}}
{{- define "sandlot.etcdPorts" -}}
{{- $ports := list }}
{{- range .Values.etcd.external.endpoints }}
{{- $ports = append $ports (regexFind ":[0-9]+/?$" . | trimAll ":/" | default "443") }}
{{- end }}
{{- $ports | uniq | join " " }}
{{- end }}

{{- /*
Where backups of the store go, or nothing where there are none.
*/}}
{{- define "sandlot.backup" -}}
{{- if and .Values.backup.enabled (ne .Values.etcd.mode "external") (ne .Values.profile "small") }}
{{- .Values.backup.target }}
{{- end }}
{{- end }}
