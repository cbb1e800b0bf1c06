// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

// Folders of a node. Those for /var/lib and /var/log are there in its namespace.
const (
	folderEtc = "etc"
	// folderAccount has the token of the program for NetworkPolicies.
	folderAccount = "etc/serviceaccount"
	folderLog     = "log"
	folderLib     = controlplane.NodeLib
	folderVarLog  = "var-log"
)

const (
	// Where the folder and the programs of a node are in its namespace.
	inside         = "/run/node"
	insideEtc      = inside + "/" + folderEtc
	insidePrograms = "/run/programs"
	insideImages   = "/run/images"

	containerdSocket = "/run/containerd/containerd.sock"
	apiServerPort    = "6443"
	// apiServerName is the name that kube-apiserver's certificate is for.
	apiServerName = "kubernetes"
)

// bootConfig is what the process of a node reads from the one that starts it.
type bootConfig struct {
	Name, Dir string
	// HostAddress and NodeAddress are those of the link, and Network is where other nodes are.
	HostAddress, NodeAddress, Network string
	// Pods is where the pods of the node get their addresses from.
	Pods string
	// Programs are paths on this machine.
	Programs, Images []string
	// IPTables is a path, or empty without NetworkPolicies.
	IPTables string
}

func (n *Node) bootConfig() bootConfig {
	config := bootConfig{
		Name: n.options.Name, Dir: n.dir,
		HostAddress: n.number.hostAddress(), Pods: n.number.pods().String(), NodeAddress: n.number.nodeAddress(), Network: n.number.network.String(),
		Programs: []string{n.tools.runc, n.tools.ip}, Images: n.options.Images, IPTables: n.tools.iptables,
	}
	for _, path := range n.tools.programs {
		config.Programs = append(config.Programs, path)
	}
	return config
}

// writeConfigs writes what the programs of the node read. Paths are those in the node.
func (n *Node) writeConfigs() error {
	kubelet, err := n.plane.Kubelet(n.options.Name, n.number.nodeAddress(), n.options.Name)
	if err != nil {
		return err
	}
	api := clientcmdapi.NewConfig()
	api.Clusters["node"] = &clientcmdapi.Cluster{
		Server: "https://" + n.number.hostAddress() + ":" + apiServerPort, TLSServerName: apiServerName, CertificateAuthorityData: kubelet.CAData,
	}
	api.AuthInfos["node"] = &clientcmdapi.AuthInfo{ClientCertificateData: kubelet.CertData, ClientKeyData: kubelet.KeyData}
	api.Contexts["node"] = &clientcmdapi.Context{Cluster: "node", AuthInfo: "node"}
	api.CurrentContext = "node"
	kubeconfig, err := clientcmd.Write(*api)
	if err != nil {
		return err
	}
	taints, err := json.Marshal(n.taints())
	if err != nil {
		return err
	}
	values := strings.NewReplacer(
		"$ADDRESS", n.number.nodeAddress(), "$CGROUP", "/"+n.number.cgroup(), "$PODS", n.number.pods().String(),
		"$ETC", insideEtc, "$PROGRAMS", insidePrograms, "$SOCKET", containerdSocket, "$PAUSE", PauseImage, "$CNI", n.tools.cni, "$TAINTS", string(taints),
	)
	for name, content := range map[string]string{
		"kubelet.kubeconfig": string(kubeconfig),
		"kubelet.crt":        string(kubelet.CertData),
		"kubelet.key":        string(kubelet.KeyData),
		"ca.crt":             string(kubelet.CAData),
		"kubelet.yaml":       values.Replace(kubeletYAML),
		"containerd.toml":    values.Replace(containerdTOML),
		"sandlot.conflist":   values.Replace(cniJSON),
	} {
		if err := os.WriteFile(filepath.Join(n.dir, folderEtc, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("configuration of a node: %w", err)
		}
	}
	return nil
}

// kubeletYAML lets the kubelet run where others keep the machine: its cgroups are below one of
// ours, and it may have swap, and the first version of cgroups. Images are never pulled, so none
// is removed. What volumes hold is looked at often, so that tests of evictions need no minute.
const kubeletYAML = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $ADDRESS
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: $ETC/ca.crt}
authorization: {mode: AlwaysAllow}
tlsCertFile: $ETC/kubelet.crt
tlsPrivateKeyFile: $ETC/kubelet.key
containerRuntimeEndpoint: unix://$SOCKET
cgroupDriver: cgroupfs
cgroupRoot: $CGROUP
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
resolvConf: ""
clusterDNS: [10.0.0.10]
volumeStatsAggPeriod: 10s
imagePullCredentialsVerificationPolicy: NeverVerify
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 200Mi, nodefs.available: 1Gi, imagefs.available: 1Gi}
maxPods: 250
registerWithTaints: $TAINTS
`

// containerdTOML keeps the score of the OOM killer that containerd has: in a namespace it may not
// lower it, and no container would start.
const containerdTOML = `version = 3
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.blockfile"]

[grpc]
  address = "$SOCKET"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "$PAUSE"

[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["$CNI"]
  conf_dir = "$ETC"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "$PROGRAMS/runc"
  SystemdCgroup = false
`

// cniJSON connects pods by links of their own. Their addresses are noted where they are gone when
// the node starts anew.
const cniJSON = `{
  "cniVersion": "1.0.0",
  "name": "sandlot",
  "plugins": [{
    "type": "ptp",
    "ipam": {
      "type": "host-local",
      "dataDir": "/run/pod-addresses",
      "ranges": [[{"subnet": "$PODS"}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
`
