// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	fakeclient "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	kubeletvolume "k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	kubeletprojected "k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/kubernetes/pkg/volume/util/volumepathhandler"
	"k8s.io/mount-utils"
)

// volumeKubelet is the kubelet's volume manager with its own plugins, on the mounts of this machine.
type volumeKubelet struct {
	volumemanager.VolumeManager

	mu      sync.Mutex // guards the fields below
	pods    map[types.UID]*corev1.Pod
	removed map[types.UID]bool // containers are removed
}

func newVolumeKubelet(t *testing.T, root string) *volumeKubelet {
	k := &volumeKubelet{pods: map[types.UID]*corev1.Pod{}, removed: map[types.UID]bool{}}
	client := fakeclient.NewSimpleClientset(&corev1.Node{})
	host := &volumeHost{root: root, client: client, mounter: mount.New(""), plugins: &kubeletvolume.VolumePluginMgr{}, informers: informers.NewSharedInformerFactory(client, 0)}
	var plugins []kubeletvolume.VolumePlugin
	for _, probe := range []func() []kubeletvolume.VolumePlugin{
		emptydir.ProbeVolumePlugins, configmap.ProbeVolumePlugins, secret.ProbeVolumePlugins, downwardapi.ProbeVolumePlugins, kubeletprojected.ProbeVolumePlugins,
	} {
		plugins = append(plugins, probe()...)
	}
	must(host.plugins.InitPlugins(plugins, nil, host))
	k.VolumeManager = volumemanager.NewVolumeManager(true, "n1", k, k, client, host.plugins, host.mounter, hostutil.NewHostUtil(), host.GetPodsDir(),
		&record.FakeRecorder{}, volumepathhandler.NewBlockVolumePathHandler(), nil, 0)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { k.Run(ctx, claimSources{}) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return k
}

func (k *volumeKubelet) up(ctx context.Context, pods []*corev1.Pod) error {
	k.mu.Lock()
	for _, p := range pods {
		k.pods[p.UID] = p
	}
	k.mu.Unlock()
	return forAllPods(pods, func(p *corev1.Pod) error { return k.WaitForAttachAndMount(ctx, p) })
}

func (k *volumeKubelet) down(ctx context.Context, pods []*corev1.Pod) error {
	k.mu.Lock()
	for _, p := range pods {
		k.removed[p.UID] = true
	}
	k.mu.Unlock()
	return forAllPods(pods, func(p *corev1.Pod) error { return k.WaitForUnmount(ctx, p) })
}

// GetPods returns all pods.
func (k *volumeKubelet) GetPods() []*corev1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(k.pods))
	for _, p := range k.pods {
		pods = append(pods, p)
	}
	return pods
}

// GetPodByUID returns the pod with a UID.
func (k *volumeKubelet) GetPodByUID(uid types.UID) (*corev1.Pod, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.pods[uid]
	return p, ok
}

// ShouldPodContainersBeTerminating reports whether the pod is terminating.
func (k *volumeKubelet) ShouldPodContainersBeTerminating(uid types.UID) bool {
	return k.ShouldPodRuntimeBeRemoved(uid)
}

// ShouldPodRuntimeBeRemoved reports whether the containers of the pod are removed.
func (k *volumeKubelet) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.removed[uid]
}

// volumeHost is the kubelet's host interface for plugins: directories, mounts, and cached API objects.
type volumeHost struct {
	kubeletvolume.VolumeHost
	kubeletvolume.KubeletVolumeHost

	root      string
	client    clientset.Interface
	mounter   mount.Interface
	plugins   *kubeletvolume.VolumePluginMgr
	informers informers.SharedInformerFactory
}

func (h *volumeHost) GetPluginDir(name string) string { return filepath.Join(h.root, "plugins", name) }
func (h *volumeHost) GetPodsDir() string              { return filepath.Join(h.root, "pods") }

func (h *volumeHost) GetPodVolumeDir(uid types.UID, plugin, name string) string {
	return filepath.Join(h.GetPodsDir(), string(uid), "volumes", plugin, name)
}

func (h *volumeHost) GetPodPluginDir(uid types.UID, plugin string) string {
	return filepath.Join(h.GetPodsDir(), string(uid), "plugins", plugin)
}

func (h *volumeHost) GetKubeClient() clientset.Interface { return h.client }
func (h *volumeHost) GetMounter() mount.Interface        { return h.mounter }
func (h *volumeHost) GetHostUtil() hostutil.HostUtils    { return hostutil.NewHostUtil() }

func (h *volumeHost) GetSubpather() subpath.Interface           { return subpath.New(h.mounter) }
func (h *volumeHost) GetNodeName() types.NodeName               { return "n1" }
func (h *volumeHost) GetNodeLabels() (map[string]string, error) { return nil, nil }
func (h *volumeHost) GetNodeAllocatable() (corev1.ResourceList, error) {
	return corev1.ResourceList{}, nil
}
func (h *volumeHost) GetInformerFactory() informers.SharedInformerFactory { return h.informers }
func (h *volumeHost) DeleteServiceAccountTokenFunc() func(types.UID)      { return func(types.UID) {} }

func (h *volumeHost) GetServiceAccountTokenFunc() func(string, string, *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return nil // no volume has a token
}

func (h *volumeHost) GetConfigMapFunc() func(string, string) (*corev1.ConfigMap, error) {
	shown, _ := shownObjects()
	return func(string, string) (*corev1.ConfigMap, error) { return shown, nil }
}

func (h *volumeHost) GetSecretFunc() func(string, string) (*corev1.Secret, error) {
	_, shown := shownObjects()
	return func(string, string) (*corev1.Secret, error) { return shown, nil }
}

// NewWrapperMounter returns the mounter of an emptyDir on which another volume is based.
func (h *volumeHost) NewWrapperMounter(name string, spec kubeletvolume.Spec, pod *corev1.Pod) (kubeletvolume.Mounter, error) {
	spec.Volume.Name = "wrapped_" + name
	plugin, err := h.plugins.FindPluginBySpec(&spec)
	if err != nil {
		return nil, err
	}
	return plugin.NewMounter(&spec, pod)
}

// NewWrapperUnmounter returns the unmounter of NewWrapperMounter's emptyDir.
func (h *volumeHost) NewWrapperUnmounter(name string, spec kubeletvolume.Spec, uid types.UID) (kubeletvolume.Unmounter, error) {
	spec.Volume.Name = "wrapped_" + name
	plugin, err := h.plugins.FindPluginBySpec(&spec)
	if err != nil {
		return nil, err
	}
	return plugin.NewUnmounter(spec.Name(), uid)
}
