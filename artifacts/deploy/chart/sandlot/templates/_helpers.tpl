{{- /*
Copyright The Sandlot Authors.
SPDX-License-Identifier: Apache-2.0
*/}}

{{- /*
Annotations and labels of an object. The labels come last, so that more of them can follow.
*/}}
{{- define "sandlot.metadata" -}}
{{- include "sandlot.annotated" (list . dict) }}
{{- end }}

{{- /*
The same of an object with annotations of its own: the root, and those.
*/}}
{{- define "sandlot.annotated" -}}
{{- $root := index . 0 }}
{{- with merge (dict) (index . 1) $root.Values.commonAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{ end -}}
labels:
  {{- include "sandlot.labels" $root | nindent 2 }}
{{- end }}

{{- define "sandlot.labels" -}}
{{- if not .Values.static -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ end -}}
{{- merge (dict) .Values.commonLabels (dict "app.kubernetes.io/part-of" "sandlot") | toYaml }}
{{- end }}

{{- /*
Labels and annotations of the pods of a program: its values, its name, and the container that
kubectl takes where none is named.
*/}}
{{- define "sandlot.podMetadata" -}}
labels:
  app.kubernetes.io/name: {{ .name }}
  app.kubernetes.io/part-of: sandlot
  {{- with .program.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or .container .program.podAnnotations }}
annotations:
  {{- with .container }}
  kubectl.kubernetes.io/default-container: {{ . }}
  {{- end }}
  {{- with .program.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /*
What the pods of a program have in common with others: the root, its values and its name;
whether it has volumes that it writes; and how its pods are kept on different nodes, by
"required" or "preferred", or not at all.
*/}}
{{- define "sandlot.pod" -}}
securityContext:
  runAsNonRoot: true
  {{- if .root.Values.podSecurityContext.fixedUser }}
  runAsUser: 65532
  runAsGroup: 65532
  {{- if .volumes }}
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .program.nodeSelector | default .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .program.tolerations | default .root.Values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- if .program.affinity }}
affinity:
  {{- toYaml .program.affinity | nindent 2 }}
{{- else if eq .apart "required" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          app.kubernetes.io/name: {{ .name }}
{{- else if eq .apart "preferred" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            app.kubernetes.io/name: {{ .name }}
{{- end }}
{{- if .program.topologySpreadConstraints }}
topologySpreadConstraints:
{{- toYaml .program.topologySpreadConstraints | nindent 0 }}
{{- else if .apart }}
topologySpreadConstraints:
- topologyKey: topology.kubernetes.io/zone
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
{{- end }}
{{- end }}

{{- /*
The image of a container: the root, the values of the image, and its repository where they
name none. Without a tag it is one of our own, which has the version of the chart.
*/}}
{{- define "sandlot.image" -}}
{{- $root := index . 0 }}
{{- $image := index . 1 }}
{{- $repository := $image.repository | default (index . 2) }}
{{- if not (contains "/" $repository) }}
{{- $repository = printf "%s/%s" $root.Values.image.registry $repository }}
{{- end -}}
image: {{ if $image.digest }}{{ $repository }}@{{ $image.digest }}{{ else }}{{ $repository }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- with $root.Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- /*
The members of our own etcd: the names and ports of their URLs, for clients or for each other.
*/}}
{{- define "sandlot.etcdClients" -}}
{{- range $i := until 3 }}{{ if $i }},{{ end }}https://sandlot-etcd-{{ $i }}.sandlot-etcd.$(POD_NAMESPACE).svc:2379{{ end }}
{{- end }}

{{- define "sandlot.etcdPeers" -}}
{{- range $i := until 3 }}{{ if $i }},{{ end }}sandlot-etcd-{{ $i }}=https://sandlot-etcd-{{ $i }}.sandlot-etcd.$(POD_NAMESPACE).svc:2380{{ end }}
{{- end }}

{{- /*
What the API server is told of an etcd of the user's, and the name of that ConfigMap. In a
release the name changes with the content, so that pods are replaced.
*/}}
{{- define "sandlot.etcdConfig" -}}
servers: {{ join "," .Values.etcd.external.endpoints | quote }}
prefix: {{ .Values.etcd.external.prefix | quote }}
{{- end }}

{{- define "sandlot.etcdConfigMap" -}}
sandlot-etcd{{ if not .Values.static }}-{{ include "sandlot.etcdConfig" . | sha256sum | trunc 10 }}{{ end }}
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

{{- /*
What is in a volume for the init container that takes what a restore offers.
*/}}
{{- define "sandlot.restoreSecret" -}}
secretName: sandlot-restore
optional: true
defaultMode: 288 # 0440
items: # what else is in it is for the restore itself
- {key: id, path: id}
- {key: token, path: token}
- {key: ca.crt, path: ca.crt}
- {key: sha256, path: sha256}
{{- end }}

{{- /*
Ports of DNS, wherever it runs. A policy sees the port behind the Service, which is 5353 on
OpenShift.
*/}}
{{- define "sandlot.dnsPorts" -}}
- {protocol: UDP, port: 53}
- {protocol: TCP, port: 53}
- {protocol: UDP, port: 5353}
- {protocol: TCP, port: 5353}
{{- end }}

{{- /*
All pods, and networks outside of the cluster.
*/}}
{{- define "sandlot.networks" -}}
- namespaceSelector: {}
{{- range . }}
- ipBlock: {cidr: {{ . | quote }}}
{{- end }}
{{- end }}
