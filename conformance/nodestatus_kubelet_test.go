// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sort"
	"strings"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeeviction "k8s.io/kubernetes/pkg/kubelet/eviction"
	kubeimages "k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown"
	"k8s.io/kubernetes/pkg/kubelet/util/sliceutils"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// kubeletNodeObject returns the Node object of the kubelet. The version of the kubelet is not compared.
func kubeletNodeObject(in nodeFacts) nodeBuilt {
	ctx, f := context.Background(), &in.Facts
	source := &nodeSource{in: &in}
	clock := testingclock.NewFakeClock(f.Now)
	n := &kubelet.ConformanceNode{
		Name: f.Config.Name, Hostname: f.Config.Hostname, ProviderID: f.Config.ProviderID, ValidateIP: kubelet.ConformanceNodeIP,
		Labels: f.Config.Labels, Taints: f.Config.Taints, External: f.Config.ExternalCloudProvider, AttachDetach: !f.Config.NoControllerAttachDetach,
		MaxPods: f.Config.MaxPods, PodsPerCore: f.Config.PodsPerCore, MaxImages: *f.Config.MaxImages, Port: f.Config.Port,
		Features: f.Config.DeclaredFeatures, LocalStorage: !f.Config.NoLocalStorageCapacity,
		Machine: cadvisorMachine(&f.Machine), Versions: nodeVersions{in: &in}, Containers: source, Runtime: nodeRuntime{in: &in, at: source},
		Images: nodeImages{in: &in}, Evictions: nodeEvictions{in: &in}, Shutdown: nodeShutdown{in: &in}, Volumes: nodeVolumes{in: &in},
		Recorder: source, Clock: clock, Storage: f.Health.Storage, Cordoned: f.Announced.Unschedulable,
	}
	for _, ip := range f.Config.NodeIPs {
		n.IPs = append(n.IPs, net.IP(ip.AsSlice()))
	}
	for _, err := range f.Health.Unhealthy {
		name, text, _ := strings.Cut(err.Error(), " is not healthy: ")
		n.Unhealthy = map[string]error{name: errors.New(text)}
	}
	now := time.Now() // the kubelet computes the age of a status with the real clock
	for _, s := range in.Statuses {
		clock.SetTime(now.Add(-s.Age))
		source.status = s.Status
		n.AskRuntime(ctx)
	}
	clock.SetTime(f.Now)
	node, err := (*corev1.Node)(nil), error(nil)
	if in.Previous == nil {
		node, err = n.Initial(ctx)
	} else {
		node = n.Update(ctx, in.Previous)
	}
	if err != nil || node.Status.NodeInfo.KubeletVersion != version.Get().String() {
		panic(fmt.Sprint(err, node.Status.NodeInfo.KubeletVersion))
	}
	node.Status.NodeInfo.KubeletVersion = nodestatus.Version
	return nodeBuilt{Node: node, Events: source.events}
}

// nodeSource is the container manager and the event recorder of a kubelet.
type nodeSource struct {
	cm.ContainerManager
	in     *nodeFacts
	status *cri.Status // status of the runtime
	events []nodestatus.Event
}

func (s *nodeSource) GetCapacity(_ klog.Logger, isolation bool) corev1.ResourceList {
	list := corev1.ResourceList{}
	if size := s.in.Facts.Machine.RootFS; isolation && size > 0 {
		list = cadvisor.EphemeralStorageCapacityFromFsInfo(cadvisorapi.FsInfo{Capacity: uint64(size)})
	}
	return list
}

// GetNodeAllocatableReservation calls the kubelet's manager, which has read the capacity at its start.
func (s *nodeSource) GetNodeAllocatableReservation() corev1.ResourceList {
	in := s.in.Reserved
	in.Capacity = cadvisor.CapacityFromMachineInfo(cadvisorMachine(&s.in.Facts.Machine))
	maps.Copy(in.Capacity, s.GetCapacity(klog.Background(), !s.in.Facts.Config.NoLocalStorageCapacity))
	manager, _ := in.kubelet(context.Background())
	_, reserved, _ := manager.Allocatable()
	return reserved
}

func (s *nodeSource) GetDevicePluginResourceCapacity(klog.Logger) (capacity, allocatable corev1.ResourceList, removed []string) {
	for _, name := range s.in.Facts.Devices.Removed {
		removed = append(removed, string(name))
	}
	return s.in.Facts.Devices.Capacity, s.in.Facts.Devices.Allocatable, removed
}

func (s *nodeSource) Status() cm.Status {
	return cm.Status{SoftRequirements: s.in.Facts.Health.Warning}
}

func (s *nodeSource) WithLogger(klog.Logger) record.EventRecorderLogger { return s }

func (s *nodeSource) Event(_ runtime.Object, kind, reason, message string) {
	if reason != nodestatus.ReasonRebooted {
		s.events = append(s.events, nodestatus.Event{Type: kind, Reason: reason, Message: message})
	}
}

func (s *nodeSource) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	s.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (s *nodeSource) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	s.Eventf(object, kind, reason, format, args...)
}

// cadvisorMachine converts machine information to the type of cAdvisor.
func cadvisorMachine(m *machine.Info) *cadvisorapi.MachineInfo {
	info := &cadvisorapi.MachineInfo{
		NumCores: m.CPUs, MemoryCapacity: uint64(m.Memory), SwapCapacity: uint64(m.Swap),
		MachineID: m.MachineID, SystemUUID: m.SystemUUID, BootID: m.BootID,
	}
	for size, bytes := range m.HugePages {
		info.HugePages = append(info.HugePages, cadvisorapi.HugePagesInfo{PageSize: uint64(size >> 10), NumPages: uint64(bytes / size)})
	}
	slices.SortFunc(info.HugePages, func(a, b cadvisorapi.HugePagesInfo) int { return cmp.Compare(a.PageSize, b.PageSize) })
	return info
}

type nodeVersions struct {
	cadvisor.Interface
	in *nodeFacts
}

func (v nodeVersions) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	m := &v.in.Facts.Machine
	return &cadvisorapi.VersionInfo{KernelVersion: m.KernelVersion, ContainerOsVersion: m.OSImage}, nil
}

type nodeRuntime struct {
	kubecontainer.Runtime
	in *nodeFacts
	at *nodeSource
}

func (nodeRuntime) Type() string { return "containerd" }

func (r nodeRuntime) Version(context.Context) (kubecontainer.Version, error) {
	return kuberuntime.ConformanceVersion(r.in.Version)
}

func (r nodeRuntime) Status(context.Context) (*kubecontainer.RuntimeStatus, error) {
	s := r.at.status
	if s == nil {
		return nil, errors.New("no answer")
	}
	out := &kubecontainer.RuntimeStatus{Features: &kubecontainer.RuntimeFeatures{SupplementalGroupsPolicy: s.Features.SupplementalGroupsPolicy}}
	for _, c := range s.Conditions {
		out.Conditions = append(out.Conditions, kubecontainer.RuntimeCondition{
			Type: kubecontainer.RuntimeConditionType(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message,
		})
	}
	for _, h := range s.Handlers {
		out.Handlers = append(out.Handlers, kubecontainer.RuntimeHandler{
			Name: h.Name, SupportsRecursiveReadOnlyMounts: h.RecursiveReadOnlyMounts, SupportsUserNamespaces: h.UserNamespaces,
		})
	}
	return out, nil
}

type nodeImages struct {
	kubeimages.ImageGCManager
	in *nodeFacts
}

// GetImageList sorts the images like the kubelet's image cache.
func (i nodeImages) GetImageList() (all []kubecontainer.Image, _ error) {
	for _, image := range i.in.Facts.Images {
		all = append(all, kubecontainer.Image{ID: image.ID, RepoTags: image.RepoTags, RepoDigests: image.RepoDigests, Size: int64(image.Size)})
	}
	sort.Sort(sliceutils.ByImageSize(all))
	return all, nil
}

type nodeEvictions struct {
	kubeeviction.Manager
	in *nodeFacts
}

func (e nodeEvictions) IsUnderMemoryPressure() bool { return e.in.Facts.Health.MemoryPressure }
func (e nodeEvictions) IsUnderDiskPressure() bool   { return e.in.Facts.Health.DiskPressure }
func (e nodeEvictions) IsUnderPIDPressure() bool    { return e.in.Facts.Health.PIDPressure }

type nodeShutdown struct {
	nodeshutdown.Manager
	in *nodeFacts
}

func (s nodeShutdown) ShutdownStatus() error {
	if s.in.Facts.Health.ShuttingDown {
		return errors.New("node is shutting down")
	}
	return nil
}

type nodeVolumes struct {
	volumemanager.VolumeManager
	in *nodeFacts
}

func (v nodeVolumes) ReconcilerStatesHasBeenSynced() bool { return v.in.Facts.VolumesKnown }

func (v nodeVolumes) GetVolumesInUse() []corev1.UniqueVolumeName { return v.in.Facts.VolumesInUse }
