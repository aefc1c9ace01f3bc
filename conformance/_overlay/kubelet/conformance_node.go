// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"net"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubeletconfiginternal "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/utils/clock"
)

// ConformanceNode has the values and components from which a kubelet computes its Node object.
type ConformanceNode struct {
	Name, Hostname, ProviderID string
	IPs                        []net.IP
	ValidateIP                 func(net.IP) error
	Labels                     map[string]string
	Taints                     []v1.Taint
	External, AttachDetach     bool
	MaxPods, PodsPerCore       int
	MaxImages, Port            int32
	Features                   []string
	LocalStorage               bool

	Machine    *cadvisorapi.MachineInfo
	Versions   cadvisor.Interface
	Containers cm.ContainerManager
	Runtime    kubecontainer.Runtime
	Images     images.ImageGCManager
	Evictions  eviction.Manager
	Shutdown   nodeshutdown.Manager
	Volumes    volumemanager.VolumeManager
	Recorder   record.EventRecorderLogger
	Clock      clock.WithTicker
	Unhealthy  map[string]error
	Storage    error
	Cordoned   bool // the node was unschedulable at the last update

	kl *Kubelet
}

// kubelet returns a Kubelet with the fields of n. The first call creates the Kubelet, and later calls return the same one.
func (n *ConformanceNode) kubelet() *Kubelet {
	if n.kl != nil {
		return n.kl
	}
	kl := &Kubelet{
		nodeName: types.NodeName(n.Name), hostname: n.Hostname, providerID: n.ProviderID,
		nodeIPs: n.IPs, nodeIPValidator: n.ValidateIP, externalCloudProvider: n.External,
		nodeLabels: n.Labels, registerWithTaints: n.Taints, enableControllerAttachDetach: n.AttachDetach,
		maxPods: n.MaxPods, podsPerCore: n.PodsPerCore, nodeStatusMaxImages: n.MaxImages,
		daemonEndpoints:      &v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: n.Port}},
		nodeDeclaredFeatures: n.Features,
		kubeletConfiguration: kubeletconfiginternal.KubeletConfiguration{LocalStorageCapacityIsolation: n.LocalStorage},
		machineInfo:          n.Machine, cadvisor: n.Versions, containerManager: n.Containers, containerRuntime: n.Runtime,
		imageManager: n.Images, evictionManager: n.Evictions, shutdownManager: n.Shutdown, volumeManager: n.Volumes,
		recorder: n.Recorder, clock: n.Clock, lastNodeUnschedulable: n.Cordoned,
		nodeRef:      &v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: n.Name},
		runtimeState: newRuntimeState(30 * time.Second), // maxWaitForContainerRuntime
	}
	kl.oneTimeInitializer.Do(func() {}) // it would start the modules that need a runtime
	for name, err := range n.Unhealthy {
		kl.runtimeState.addHealthCheck(name, func() (bool, error) { return false, err })
	}
	kl.runtimeState.setStorageState(n.Storage)
	kl.setNodeStatusFuncs = kl.defaultNodeStatusFuncs()
	n.kl = kl
	return kl
}

// AskRuntime updates the kubelet's state of the container runtime, as a real kubelet does every five seconds.
func (n *ConformanceNode) AskRuntime(ctx context.Context) { n.kubelet().updateRuntimeUp(ctx) }

// Initial returns the Node object that a kubelet creates to register the node.
func (n *ConformanceNode) Initial(ctx context.Context) (*v1.Node, error) {
	return n.kubelet().initialNode(ctx)
}

// Update returns a copy of node with the status that the kubelet computes now.
func (n *ConformanceNode) Update(ctx context.Context, node *v1.Node) *v1.Node {
	updated, _ := n.kubelet().updateNode(ctx, node)
	return updated
}

// ConformanceChanged reports whether the kubelet sends the status of updated to the API server at once, because it differs from
// the status of old.
func ConformanceChanged(old, updated *v1.Node) bool {
	return nodeStatusHasChanged(&old.Status, &updated.Status)
}

// ConformanceReconcile changes existing, the Node object that exists when a kubelet registers. initial is the Node object
// that the kubelet creates if no Node exists. ConformanceReconcile reports whether the kubelet sends the changed object to
// the API server.
func ConformanceReconcile(ctx context.Context, initial, existing *v1.Node) bool {
	kl := &Kubelet{containerManager: cm.NewStubContainerManager()}
	logger := klog.FromContext(ctx)
	update := kl.reconcileCMADAnnotationWithExistingNode(logger, initial, existing)
	update = kl.updateDefaultLabels(initial, existing) || update
	update = kl.reconcileExtendedResource(logger, initial, existing) || update
	return kl.reconcileHugePageResource(logger, initial, existing) || update
}

// ConformanceZeroDevices sets the extended resources in the status of node to zero, and reports whether it has changed node.
// A kubelet does this if it has lost the state of its device plugins.
func ConformanceZeroDevices(ctx context.Context, node *v1.Node) bool {
	kl := &Kubelet{containerManager: cm.NewStubContainerManagerWithExtendedResource(true)}
	return kl.reconcileExtendedResource(klog.FromContext(ctx), node, node)
}

// ConformanceNodeIP returns an error if the node cannot have the address ip. It calls validateNodeIP.
func ConformanceNodeIP(ip net.IP) error { return validateNodeIP(ip) }
