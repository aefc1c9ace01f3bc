// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"log/slog"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/images/credential"
)

// NodeAPIVersion and NodeKind are the values of apiVersion and kind in the document of a NodeConfiguration.
const (
	NodeAPIVersion = "nodeagent/v1alpha1"
	NodeKind       = "NodeConfiguration"
)

// Values of unhealthyDevices.
const (
	EvictUnhealthy   = "Evict"   // the pod fails, so that its controller replaces it
	RestartUnhealthy = "Restart" // the container starts again with the same device, which its plugin may repair
)

// NodeConfiguration has the settings that a kubelet has as command-line flags, and settings that a kubelet does not have. The
// zero value of a field means its default, which its comment names.
type NodeConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	NodeName   string            `json:"nodeName,omitempty"`   // --hostname-override; the name of the host
	NodeIPs    []netip.Addr      `json:"nodeIPs,omitempty"`    // --node-ip; addresses of the Node object, or 127.0.0.1 for plain processes without a cluster
	NodeLabels map[string]string `json:"nodeLabels,omitempty"` // --node-labels
	// ExternalCloudProvider is --cloud-provider=external: the cloud controller manager initializes the Node and sets its addresses. False: there is
	// no cloud provider.
	ExternalCloudProvider bool `json:"externalCloudProvider,omitempty"`

	Reregister bool   `json:"reregister,omitempty"` // recreate a deleted Node object
	RootDir    string `json:"rootDir,omitempty"`    // --root-dir; /var/lib/nodeagent
	CertDir    string `json:"certDir,omitempty"`    // --cert-dir; pki in rootDir

	Kubeconfig          string `json:"kubeconfig,omitempty"`          // --kubeconfig; none: the node belongs to no cluster, and pods have no service accounts
	TokensOnly          bool   `json:"tokensOnly,omitempty"`          // kubeconfig is for service account tokens: no Node object, and no pods of the API server
	BootstrapKubeconfig string `json:"bootstrapKubeconfig,omitempty"` // --bootstrap-kubeconfig, for the first certificate; none

	ObjectsDir     string `json:"objectsDir,omitempty"`     // config maps, secrets, services and volumes of a node without a cluster, see objects.Dir
	KeepObjects    bool   `json:"keepObjects,omitempty"`    // objects of running pods are kept on disk, for restarts while the API server is unavailable
	ManifestSocket string `json:"manifestSocket,omitempty"` // unix socket that serves the manifests of staticPodPath to read and write, see source.NewHandler
	SharedMounts   bool   `json:"sharedMounts,omitempty"`   // mount the pods directory shared, as mountPropagation needs, if its parent mount is not

	DockerConfigFiles        []string                `json:"dockerConfigFiles,omitempty"`        // registry credentials; the first existing file is used
	CredentialProviders      credential.PluginConfig `json:"credentialProviders,omitempty"`      // --image-credential-provider-config
	CredentialProviderBinDir string                  `json:"credentialProviderBinDir,omitempty"` // --image-credential-provider-bin-dir

	ParallelStarts   int        `json:"parallelStarts,omitempty"`   // pods that start at the same time; twice the processors
	ContainerLogsDir string     `json:"containerLogsDir,omitempty"` // links for log collectors; /var/log/containers where podLogsDir is /var/log/pods, else none
	AdoptPods        bool       `json:"adoptPods,omitempty"`        // take over the pods of a kubelet that ran on the node, and no longer runs
	HostSettings     bool       `json:"hostSettings,omitempty"`     // set the kernel parameters of a kubelet (protectKernelDefaults: false), and create its iptables chains by default
	ForeignPods      bool       `json:"foreignPods,omitempty"`      // also remove orphaned containers that another agent, or no agent, has created
	UnhealthyDevices string     `json:"unhealthyDevices,omitempty"` // "Evict" pods or "Restart" containers whose devices become unhealthy; empty: neither, as in the kubelet
	DrainOnExit      bool       `json:"drainOnExit,omitempty"`      // terminate all pods before the agent exits
	LogLevel         slog.Level `json:"logLevel,omitempty"`         // that of logging.verbosity, otherwise INFO
	SystemBus        string     `json:"systemBus,omitempty"`        // D-Bus socket on which logind is called; that of the system
	LogindConfigDir  string     `json:"logindConfigDir,omitempty"`  // directory of logind's drop-in files, for its longest delay; that of the system
}
