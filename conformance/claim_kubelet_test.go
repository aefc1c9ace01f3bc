// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	clientcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/populator"
	kubeletvolume "k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/csimigration"
	volumetesting "k8s.io/kubernetes/pkg/volume/testing"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// claimClasses maps classes of refusals to texts in the errors of the kubelet.
var claimClasses = [][2]string{
	{"no claim", "failed to fetch PVC"},
	{"deleted", "PVC is being deleted"},
	{"not bound", "PVC is not bound"},
	{"no volume name", "PVC has empty pvc.Spec.VolumeName"},
	{"not owner", "pod is not owner"},
	{"no PV", "failed to fetch PV "},
	{"no claimRef", "nil pv.Spec.ClaimRef"},
	{"other claim", "does not point to claim.UID"},
	{"mode", "has volumeMode"},
	{"mode", "cannot get volumeMode"},
	{"no plugin", "failed to get Plugin from volumeSpec"},
	{"no block", "failed to find BlockVolumeMapper"},
	{"affinity", "NodeAffinity check failed"},
	{"options", "mount options are not supported"},
	{"several labels", "multiple SELinux labels found"},
	{"other label", "conflicting SELinux labels of volume"},
	{"in use", "volume uses the ReadWriteOncePod access mode"},
}

// kubeletClaim adds the volume to the desired state of the world by the populator. Then it runs the operation that the
// reconciler chooses: it sets the volume up, or expands a volume that is set up.
func kubeletClaim(in claimInput) claimAnswer {
	k := newClaimKubelet(in)
	wanted, err := k.populate()
	if err != "" {
		return refused(claimClass(err, claimClasses))
	}
	if err := k.operate(wanted); err != "" {
		return refused(claimClass(err, claimClasses))
	}
	spec := wanted.VolumeSpec
	answer := claimAnswer{PV: spec.Name(), Plugin: k.plugin, ReadOnly: spec.ReadOnly, Group: -1, Label: wanted.SELinuxLabel, Expanded: k.expanded}
	if gid, ok := volumemanager.ConformanceExtraGroup(wanted.VolumeGIDValue, in.Pod); ok {
		answer.Group = gid
	}
	if answer.Block = isBlock(spec.PersistentVolume); !answer.Block {
		answer.Options = volumeutil.MountOptionFromSpec(spec)
	}
	if len(answer.Options) == 0 {
		answer.Options = nil
	}
	return answer
}

// claimKubelet is a kubelet's volume manager with one pod. A test runs its steps one by one.
type claimKubelet struct {
	in      claimInput
	client  clientset.Interface
	plugins *kubeletvolume.VolumePluginMgr
	desired cache.DesiredStateOfWorld
	actual  cache.ActualStateOfWorld

	plugin, expanded string // called plugin, and the sizes of its expansion
}

func newClaimKubelet(in claimInput) *claimKubelet {
	k := &claimKubelet{in: in, client: claimClient{in: in}, plugins: &kubeletvolume.VolumePluginMgr{}}
	plugins := []kubeletvolume.VolumePlugin{
		&claimCSI{claimPlugin{k: k, name: "kubernetes.io/csi", options: true}},
		&claimPlugin{k: k, name: "kubernetes.io/nfs", options: true},
		&claimPlugin{k: k, name: "kubernetes.io/host-path"},
	}
	must(k.plugins.InitPlugins(plugins, nil, &claimHost{labels: in.Node}))
	k.desired = cache.NewDesiredStateOfWorld(k.plugins, volumeutil.NewFakeSELinuxLabelTranslator())
	k.actual = cache.NewActualStateOfWorld("n1", k.plugins)
	return k
}

// populate runs the populator once. It returns the volume to mount, or an error.
func (k *claimKubelet) populate() (operationexecutor.VolumeToMount, string) {
	ctx, cancel := context.WithCancel(context.Background())
	pods := claimPods{pod: k.in.Pod, seen: cancel} // cancels ctx, so that the populator ends after it has listed the pods once
	k.addOther()
	translator := csitranslation.New()
	populator.NewDesiredStateOfWorldPopulator(k.client, time.Nanosecond, pods, pods, k.desired, k.actual,
		csimigration.NewPluginManager(translator), translator, k.plugins).Run(ctx, claimSources{})
	if errs := k.desired.PopPodErrors(volumetypes.UniquePodName(k.in.Pod.UID)); len(errs) > 0 {
		return operationexecutor.VolumeToMount{}, strings.Join(errs, "; ")
	}
	for _, wanted := range k.desired.GetVolumesToMount() {
		if wanted.PodName == volumetypes.UniquePodName(k.in.Pod.UID) {
			return wanted.VolumeToMount, ""
		}
	}
	return operationexecutor.VolumeToMount{}, "the volume is not in the desired state"
}

// addOther adds the pod that already uses the volume, if several pods can share it.
func (k *claimKubelet) addOther() {
	if !k.in.Taken || k.in.PV == nil || k.in.PV.Spec.CSI == nil {
		return
	}
	var options []*corev1.SELinuxOptions
	if k.in.Other != "" {
		options = []*corev1.SELinuxOptions{{Level: k.in.Other}}
	}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "uid-other"}}
	_, err := k.desired.AddPodToVolume(klog.Background(), "uid-other", other, kubeletvolume.NewSpecFromPersistentVolume(k.in.PV, false), "v", k.in.PV.Annotations["pv.beta.kubernetes.io/gid"], options)
	must(err)
}

// operate runs the operation that the reconciler chooses for the volume.
func (k *claimKubelet) operate(wanted operationexecutor.VolumeToMount) string {
	logger := klog.Background()
	must(k.actual.MarkVolumeAsAttached(logger, wanted.VolumeName, wanted.VolumeSpec, "n1", "/dev/x"))
	if k.in.Taken && wanted.PluginIsDeviceMountable { // other volumes have a separate name for each pod
		must(k.actual.MarkVolumeAsMounted(operationexecutor.MarkVolumeOpts{
			PodName: "uid-other", PodUID: "uid-other", VolumeName: wanted.VolumeName, VolumeSpec: wanted.VolumeSpec, VolumeMountState: operationexecutor.VolumeMounted,
			SELinuxMountContext: wanted.SELinuxLabel,
		}))
	}
	generator := operationexecutor.NewOperationGenerator(k.client, k.plugins, &record.FakeRecorder{}, volumetesting.NewBlockVolumePathHandler())
	block := isBlock(wanted.VolumeSpec.PersistentVolume)
	if k.in.Known > 0 {
		return k.expand(generator, wanted)
	}
	k.actual.InitializeClaimSize(logger, wanted.VolumeName, k.in.Claim.Status.Capacity[corev1.ResourceStorage])
	if !block {
		return runOperation(generator.GenerateMountVolumeFunc(time.Second, wanted, k.actual, false), nil)
	}
	return runOperation(generator.GenerateMapVolumeFunc(time.Second, wanted, k.actual))
}

// expand checks whether a mounted volume needs an expansion and runs it, as reconciler.mountOrAttachVolumes does.
func (k *claimKubelet) expand(generator operationexecutor.OperationGenerator, wanted operationexecutor.VolumeToMount) string {
	logger := klog.Background()
	if isBlock(wanted.VolumeSpec.PersistentVolume) {
		if p, err := k.plugins.FindMapperPluginBySpec(wanted.VolumeSpec); err != nil || p == nil {
			return "failed to find BlockVolumeMapper" // the volume was never mapped
		}
	}
	must(k.actual.MarkVolumeAsMounted(operationexecutor.MarkVolumeOpts{
		PodName: wanted.PodName, PodUID: k.in.Pod.UID, VolumeName: wanted.VolumeName, VolumeSpec: wanted.VolumeSpec, VolumeMountState: operationexecutor.VolumeMounted,
		SELinuxMountContext: wanted.SELinuxLabel,
	}))
	k.actual.InitializeClaimSize(logger, wanted.VolumeName, *resource.NewQuantity(k.in.Known, resource.BinarySI))
	k.plugin = pluginOf(k.plugins, wanted.VolumeSpec)
	_, _, err := k.actual.PodExistsInVolume(logger, wanted.PodName, wanted.VolumeName, wanted.DesiredPersistentVolumeSize, wanted.SELinuxLabel)
	if larger, ok := err.(cache.FsResizeRequiredError); ok { //nolint:errorlint // the kubelet asks so, and it has no Unwrap
		return runOperation(generator.GenerateExpandInUseVolumeFunc(wanted, k.actual, larger.CurrentSize))
	}
	return ""
}

func pluginOf(plugins *kubeletvolume.VolumePluginMgr, spec *kubeletvolume.Spec) string {
	p, err := plugins.FindPluginBySpec(spec)
	must(err)
	return p.GetPluginName()
}

// runOperation runs an operation and returns its error.
func runOperation(ops volumetypes.GeneratedOperations, err error) string {
	if err == nil {
		err = ops.OperationFunc().DetailedErr
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// claimSources are pod sources that are ready.
type claimSources struct{ config.SourcesReady }

func (claimSources) AllReady() bool { return true }

// claimPods has one pod, which is not terminating.
type claimPods struct {
	pod  *corev1.Pod
	seen func()
}

func (p claimPods) GetPods() []*corev1.Pod {
	p.seen()
	return []*corev1.Pod{p.pod}
}

func (p claimPods) GetPodByUID(uid types.UID) (*corev1.Pod, bool) { return p.pod, uid == p.pod.UID }
func (claimPods) ShouldPodContainersBeTerminating(types.UID) bool { return false }
func (claimPods) ShouldPodRuntimeBeRemoved(types.UID) bool        { return false }

// claimClient returns the claim and the volume of an input. It ignores writes.
type claimClient struct {
	clientset.Interface
	clientcore.CoreV1Interface

	in claimInput
}

func (c claimClient) CoreV1() clientcore.CoreV1Interface { return c }

func (c claimClient) PersistentVolumeClaims(namespace string) clientcore.PersistentVolumeClaimInterface {
	return claimClaims{in: c.in, namespace: namespace}
}

func (c claimClient) PersistentVolumes() clientcore.PersistentVolumeInterface {
	return claimVolumes{in: c.in}
}

type claimClaims struct {
	clientcore.PersistentVolumeClaimInterface

	in        claimInput
	namespace string
}

func (c claimClaims) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.PersistentVolumeClaim, error) {
	if pvc := c.in.Claim; pvc != nil && pvc.Namespace == c.namespace && pvc.Name == name {
		return pvc.DeepCopy(), nil
	}
	return &corev1.PersistentVolumeClaim{}, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name) // an empty object, as the real client returns
}

func (c claimClaims) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.PersistentVolumeClaim, error) {
	return c.in.Claim.DeepCopy(), nil
}

type claimVolumes struct {
	clientcore.PersistentVolumeInterface

	in claimInput
}

func (c claimVolumes) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.PersistentVolume, error) {
	if c.in.PV != nil && c.in.PV.Name == name {
		return c.in.PV.DeepCopy(), nil
	}
	return &corev1.PersistentVolume{}, apierrors.NewNotFound(corev1.Resource("persistentvolumes"), name)
}

// claimHost has the labels of the node, and no files.
type claimHost struct {
	kubeletvolume.VolumeHost
	kubeletvolume.KubeletVolumeHost

	labels map[string]string
}

func (h *claimHost) GetNodeLabels() (map[string]string, error) { return h.labels, nil }
func (h *claimHost) GetHostUtil() hostutil.HostUtils           { return hostutil.NewFakeHostUtil(nil) }

// claimPlugin sets up volumes without any operation on the host.
type claimPlugin struct {
	kubeletvolume.VolumePlugin

	k       *claimKubelet
	name    string
	options bool
}

func (*claimPlugin) Init(kubeletvolume.VolumeHost) error      { return nil }
func (p *claimPlugin) GetPluginName() string                  { return p.name }
func (*claimPlugin) RequiresRemount(*kubeletvolume.Spec) bool { return false }
func (p *claimPlugin) SupportsMountOption() bool              { return p.options }

func (p *claimPlugin) SupportsSELinuxContextMount(*kubeletvolume.Spec) (bool, error) {
	return p.k.in.Mount && p.name == "kubernetes.io/csi", nil
}

func (*claimPlugin) GetVolumeName(spec *kubeletvolume.Spec) (string, error) { return spec.Name(), nil }

func (p *claimPlugin) CanSupport(spec *kubeletvolume.Spec) bool {
	if spec.PersistentVolume == nil {
		return false
	}
	source := spec.PersistentVolume.Spec.PersistentVolumeSource
	return map[string]bool{"kubernetes.io/csi": source.CSI != nil, "kubernetes.io/nfs": source.NFS != nil, "kubernetes.io/host-path": source.HostPath != nil}[p.name]
}

func (p *claimPlugin) NewMounter(*kubeletvolume.Spec, *corev1.Pod) (kubeletvolume.Mounter, error) {
	return &claimMount{p: p}, nil
}

// claimCSI also stages, maps and expands.
type claimCSI struct{ claimPlugin }

func (*claimCSI) CanDeviceMount(*kubeletvolume.Spec) (bool, error) { return true, nil }
func (*claimCSI) GetDeviceMountRefs(string) ([]string, error)      { return nil, nil }
func (*claimCSI) RequiresFSResize() bool                           { return true }
func (p *claimCSI) NewDeviceMounter() (kubeletvolume.DeviceMounter, error) {
	return &claimMount{p: &p.claimPlugin}, nil
}

func (*claimCSI) NewDeviceUnmounter() (kubeletvolume.DeviceUnmounter, error) {
	panic("unmount is not expected")
}

func (p *claimCSI) NodeExpand(o kubeletvolume.NodeResizeOptions) (bool, error) {
	p.k.expanded = expansion(o.OldSize.Value(), o.NewSize.Value())
	return true, nil
}

func (p *claimCSI) NewBlockVolumeMapper(*kubeletvolume.Spec, *corev1.Pod) (kubeletvolume.BlockVolumeMapper, error) {
	return &claimMount{p: &p.claimPlugin}, nil
}

func (*claimCSI) NewBlockVolumeUnmapper(string, types.UID) (kubeletvolume.BlockVolumeUnmapper, error) {
	panic("unmap is not expected")
}

func (*claimCSI) ConstructBlockVolumeSpec(types.UID, string, string) (*kubeletvolume.Spec, error) {
	panic("reconstruction is not expected")
}

// claimMount records the call of its plugin.
type claimMount struct {
	kubeletvolume.Mounter

	p *claimPlugin
}

func (m *claimMount) GetPath() string { return "/volume" }

func (m *claimMount) SetUp(kubeletvolume.MounterArgs) error {
	m.p.k.plugin = m.p.name
	return nil
}

func (m *claimMount) GetDeviceMountPath(*kubeletvolume.Spec) (string, error) { return "/staged", nil }

func (m *claimMount) MountDevice(*kubeletvolume.Spec, string, string, kubeletvolume.DeviceMounterArgs) error {
	return nil
}

func (m *claimMount) GetGlobalMapPath(*kubeletvolume.Spec) (string, error) { return "/global", nil }
func (m *claimMount) GetPodDeviceMapPath() (string, string)                { return "/pod", "v" }
func (m *claimMount) SupportsMetrics() bool                                { return false }

func (m *claimMount) GetStagingPath() string       { return "/staged" }
func (m *claimMount) SetUpDevice() (string, error) { return "/staged", nil }

func (m *claimMount) MapPodDevice() (string, error) {
	m.p.k.plugin = m.p.name
	return "/dev/x", nil
}
