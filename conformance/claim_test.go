// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/selinux"
)

// The kubelet's populator, states of the world and operations handle a volume with a claim in the same way as package claim.
func TestClaims(t *testing.T) { run(t, claims) }
func FuzzClaims(f *testing.F) { fuzz(f, claims) }

// As TestClaims, with the engine of package volume, which fetches the objects and calls plugins.
func TestClaimedVolumes(t *testing.T) {
	c := claims
	c.Make = func(choices *conformance.Choices) claimInput {
		in := makeClaim(choices)
		in.Known = 0 // the volume is set up for the first time
		if in.PV != nil && in.PV.Spec.CSI != nil && isBlock(in.PV) {
			in.PV.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem) // there is no device to bind-mount
		}
		return in
	}
	c.Ours = ourVolumes(t)
	withoutBlock := slices.DeleteFunc(slices.Clone(c.Exceptions), func(e conformance.Exception[claimInput, claimAnswer]) bool {
		return e.Name == "no SELinux label of a block volume"
	})
	c.Exceptions = append(withoutBlock, conformance.Exception[claimInput, claimAnswer]{
		Name: "mount options before nodeAffinity", Reason: "options of a plugin are checked before the volume is recorded, the nodeAffinity at the mount",
		When: func(in claimInput) bool {
			return in.PV != nil && in.PV.Spec.HostPath != nil && len(claim.MountOptions(in.PV)) > 0 && !isBlock(in.PV)
		},
		Want: func(_ claimInput, kubelet claimAnswer) claimAnswer {
			if kubelet.Refused == "affinity" {
				return refused("options")
			}
			return kubelet
		},
	})
	c.Run(t, flags.AtMost(4_000)) // each input writes a record to disk and starts goroutines
}

// claimInput is a pod with one volume that has a claim, the objects of the cluster, and the state of the node.
type claimInput struct {
	Pod   *corev1.Pod
	Claim *corev1.PersistentVolumeClaim
	PV    *corev1.PersistentVolume
	Node  map[string]string // labels
	Taken bool              // another pod of the node has the PV
	Other string            // SELinux level of that pod; empty: its container has no options
	Mount bool              // the CSI driver mounts with SELinux labels
	Known int64             // size of the PV on the node if it is already set up; zero: it is not
}

// claimAnswer is the result for the volume.
type claimAnswer struct {
	Refused  string   // class of the error; empty: the pod gets the volume
	PV       string   // name
	Plugin   string   // name of the plugin that sets it up
	ReadOnly bool     // for all containers
	Block    bool     // volume is a block device
	Group    int64    // supplemental group for the pod, or -1
	Options  []string // mount options
	Label    string   // SELinux mount label
	Expanded string   // old and new size of a requested expansion
}

// refused returns the answer for a volume that is refused.
func refused(class string) claimAnswer { return claimAnswer{Refused: class} }

// Names of the objects.
const (
	claimNamespace = "shop"
	claimName      = "data"
	claimPV        = "pv-1"
	claimPod       = types.UID("uid-1")
)

func makeClaim(c *conformance.Choices) claimInput {
	in := claimInput{Node: map[string]string{"zone": "a", "cores": "4"}, Taken: c.OneIn(4), Mount: c.OneIn(2)}
	in.Pod = claimingPod(c)
	if c.OneIn(4) {
		seLinux(c, in.Pod)
		in.Other = conformance.Pick(c, "", "s0:c1", "s0:c2")
	}
	if !c.OneIn(24) {
		in.Claim = claimOf(c, in.Pod)
	}
	if !c.OneIn(24) {
		in.PV = claimedVolume(c, in.Pod, in.Claim)
	}
	if c.OneIn(3) {
		in.Known = gibibytes(1 + c.Int(4))
	}
	return in
}

func gibibytes(n int) int64 { return int64(n) << 30 }

// claimingPod returns a pod whose containers of any type use its volume as a mount, as a device, or both.
func claimingPod(c *conformance.Choices) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: claimNamespace, Name: "web", UID: claimPod}}
	v := corev1.Volume{Name: "v"}
	if c.OneIn(4) {
		v.Ephemeral = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}
	} else {
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName, ReadOnly: c.OneIn(4)}
	}
	pod.Spec.Volumes = []corev1.Volume{v}
	var uses corev1.Container
	if way := c.Int(8); way == 6 || way == 7 {
		uses.VolumeDevices = []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
		if way == 7 {
			uses.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}
	} else {
		uses.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "c"}}
	switch c.Int(4) {
	case 0, 1:
		pod.Spec.Containers[0].VolumeMounts, pod.Spec.Containers[0].VolumeDevices = uses.VolumeMounts, uses.VolumeDevices
	case 2:
		uses.Name = "i"
		pod.Spec.InitContainers = []corev1.Container{uses}
	default:
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "e", VolumeMounts: uses.VolumeMounts, VolumeDevices: uses.VolumeDevices,
		}}}
	}
	if c.OneIn(3) {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroups: conformance.Pick(c, nil, []int64{7}, []int64{1234, 7})}
	}
	return pod
}

// seLinux adds SELinux options to a pod, and a second container that uses the volume.
func seLinux(c *conformance.Choices, pod *corev1.Pod) {
	options := func() *corev1.SELinuxOptions {
		return conformance.Pick(c, nil, &corev1.SELinuxOptions{Level: "s0:c1"}, &corev1.SELinuxOptions{Level: "s0:c1"},
			&corev1.SELinuxOptions{Level: "s0:c2", User: "me_u"}, &corev1.SELinuxOptions{Level: "s0:c2"}, &corev1.SELinuxOptions{})
	}
	if pod.Spec.SecurityContext == nil {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	pod.Spec.SecurityContext.SELinuxOptions = options()
	pod.Spec.SecurityContext.SELinuxChangePolicy = conformance.Pick(c, nil, new(corev1.SELinuxChangePolicyMountOption), new(corev1.SELinuxChangePolicyRecursive))
	first := &pod.Spec.Containers[0]
	if o := options(); o != nil {
		first.SecurityContext = &corev1.SecurityContext{SELinuxOptions: o}
	}
	if len(first.VolumeMounts) > 0 && c.OneIn(2) {
		second := *first.DeepCopy()
		second.Name = "c2"
		if o := options(); o != nil {
			second.SecurityContext = &corev1.SecurityContext{SELinuxOptions: o}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, second)
	}
}

// lacksSELinuxLevel reports whether a container has SELinux options without a level.
func (in claimInput) lacksSELinuxLevel() bool {
	for c := range containers.All(&in.Pod.Spec) {
		if o := selinux.ContainerOptions(in.Pod, c.Container); o != nil && o.Level == "" {
			return true
		}
	}
	return false
}

// claimOf returns the claim of a pod's volume, which is valid in most cases.
func claimOf(c *conformance.Choices, pod *corev1.Pod) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claimNamespace, Name: claimName, UID: conformance.Pick[types.UID](c, "claim-1", "claim-1", "")}}
	if pod.Spec.Volumes[0].Ephemeral != nil {
		pvc.Name = "web-v"
		pvc.OwnerReferences = conformance.Pick(c, nil,
			[]metav1.OwnerReference{{Kind: "Pod", Name: "web", UID: claimPod, Controller: new(true)}},
			[]metav1.OwnerReference{{Kind: "Pod", Name: "web", UID: claimPod, Controller: new(true)}},
			[]metav1.OwnerReference{{Kind: "Pod", Name: "web", UID: "uid-2", Controller: new(true)}},
			[]metav1.OwnerReference{{Kind: "Pod", Name: "web", UID: claimPod}},
			[]metav1.OwnerReference{{Kind: "Pod", Name: "web", Controller: new(true)}},
			[]metav1.OwnerReference{{Kind: "Pod", Name: "other", Controller: new(true)}},
			[]metav1.OwnerReference{{Kind: "Pod", Name: "other", UID: "uid-2"}, {Kind: "Job", Name: "x", UID: claimPod, Controller: new(true)}},
		)
	}
	if c.OneIn(8) {
		pvc.DeletionTimestamp = new(metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	}
	pvc.Finalizers = conformance.Pick(c, nil, []string{"kubernetes.io/pvc-protection"}, []string{"x", "kubernetes.io/pvc-protection"}, []string{"x"})
	pvc.Status.Phase = corev1.ClaimBound
	if c.OneIn(8) {
		pvc.Status.Phase = conformance.Pick(c, corev1.ClaimPending, corev1.ClaimLost, "")
	}
	pvc.Spec.VolumeName = claimPV
	if c.OneIn(10) {
		pvc.Spec.VolumeName = conformance.Pick(c, "", "pv-2")
	}
	pvc.Spec.AccessModes = accessModes(c)
	if c.OneIn(4) {
		pvc.Annotations = map[string]string{"volume.kubernetes.io/node-expansion-not-required": ""}
	}
	pvc.Status.Capacity = storage(1 + c.Int(4))
	if c.OneIn(2) {
		pvc.Status.AllocatedResources = conformance.Pick(c, storage(1+c.Int(4)), storage(2), corev1.ResourceList{}, corev1.ResourceList{"example.com/other": resource.MustParse("1")})
	}
	if c.OneIn(2) {
		pvc.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: conformance.Pick(c,
			corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
			corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible, "")}
	}
	pvc.Spec.Resources.Requests = storage(1 + c.Int(4))
	return pvc
}

func storage(gib int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(gibibytes(gib), resource.BinarySI)}
}

func accessModes(c *conformance.Choices) []corev1.PersistentVolumeAccessMode {
	return conformance.Pick(c, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, nil,
		[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
		[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteOncePod})
}

// claimedVolume returns the PersistentVolume of a claim, which is valid in most cases.
func claimedVolume(c *conformance.Choices, pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claimPV}}
	pv.Spec.PersistentVolumeSource = *conformance.Pick(c,
		&corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "h"}},
		&corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "h"}},
		&corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "h"}},
		&corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}},
		&corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
		&corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}},
		&corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{}},
	).DeepCopy()
	pv.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	if slices.ContainsFunc(pod.Spec.Containers, hasDevices) != c.OneIn(8) {
		pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	}
	if c.OneIn(12) {
		pv.Spec.VolumeMode = conformance.Pick(c, nil, new(corev1.PersistentVolumeMode("Other")), new(corev1.PersistentVolumeMode("")))
	}
	pv.Spec.AccessModes = accessModes(c)
	pv.Spec.Capacity = storage(1 + c.Int(4))
	if !c.OneIn(16) {
		ref := &corev1.ObjectReference{Namespace: claimNamespace, Name: claimName, UID: "claim-1"}
		if pvc != nil {
			ref.Name, ref.UID = pvc.Name, pvc.UID
		}
		switch c.Int(16) {
		case 13:
			ref.Name = "other"
		case 14:
			ref.Namespace = "other"
		case 15:
			ref.UID = "claim-2"
		}
		pv.Spec.ClaimRef = ref
	}
	pv.Spec.MountOptions = conformance.Pick(c, nil, nil, nil, []string{"ro", "hard", "", "ro"})
	if c.OneIn(6) {
		pv.Annotations = map[string]string{corev1.MountOptionAnnotation: conformance.Pick(c, "", "soft,,intr,soft", ",", " ro")}
	}
	if c.OneIn(3) {
		if pv.Annotations == nil {
			pv.Annotations = map[string]string{}
		}
		pv.Annotations["pv.beta.kubernetes.io/gid"] = conformance.Pick(c, "1234", "7", "", "x", " 7", "0x7", "-7", "+7", "9223372036854775808")
	}
	if c.OneIn(4) {
		pv.Spec.NodeAffinity = conformance.Pick(c, &corev1.VolumeNodeAffinity{}, &corev1.VolumeNodeAffinity{Required: affinity(c).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution})
	}
	return pv
}

func hasDevices(c corev1.Container) bool { return len(c.VolumeDevices) > 0 }

func isBlock(pv *corev1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// claimClass returns the class in classes whose text is part of the error text.
func claimClass(text string, classes [][2]string) string {
	for _, class := range classes {
		if strings.Contains(text, class[1]) {
			return class[0]
		}
	}
	return "unexpected: " + text
}

// expansion describes a requested expansion.
func expansion(from, to int64) string { return fmt.Sprintf("%d to %d", from, to) }

// reportsExpansion reports whether the controller of the claim reports the progress of an expansion.
func (in claimInput) reportsExpansion() bool {
	return in.Claim != nil && (in.Claim.Status.AllocatedResources != nil || in.Claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != "")
}

// allocated returns the size that the controller has allocated; false: it reports none.
func (in claimInput) allocated() (int64, bool) {
	q, ok := in.Claim.Status.AllocatedResources[corev1.ResourceStorage]
	return q.Value(), ok
}

// has returns the size of the volume before the expansion.
func (in claimInput) has() int64 {
	if in.Known > 0 {
		return in.Known
	}
	q := in.Claim.Status.Capacity[corev1.ResourceStorage]
	return q.Value()
}

var claims = conformance.Comparison[claimInput, claimAnswer]{
	Make: makeClaim, Kubelet: kubeletClaim, Ours: ourClaim,
	Exceptions: []conformance.Exception[claimInput, claimAnswer]{{
		Name: "claim from a file", Reason: "an owner without a UID matches the pod by its name; an API server rejects such owners",
		When: claimInput.fromFile,
		Want: func(in claimInput, _ claimAnswer) claimAnswer { return kubeletClaim(in.complete()) },
	}, {
		Name: "claimRef of another claim", Reason: "the claimRef must have the namespace and name of the claim, because objects from files have no UID",
		When: func(in claimInput) bool {
			return in.Claim != nil && in.PV != nil && in.PV.Spec.ClaimRef != nil && in.PV.Spec.ClaimRef.UID == in.Claim.UID &&
				(in.PV.Spec.ClaimRef.Namespace != in.Claim.Namespace || in.PV.Spec.ClaimRef.Name != in.Claim.Name)
		},
		Want: func(in claimInput, kubelet claimAnswer) claimAnswer {
			if slices.Contains([]string{"deleted", "not bound", "no volume name", "no PV", "not owner"}, kubelet.Refused) {
				return kubelet
			}
			return refused("other claim")
		},
	}, {
		Name: "no volumeMode", Reason: "objects from files may lack the default Filesystem, which the API server sets",
		When: func(in claimInput) bool { return in.PV != nil && in.PV.Spec.VolumeMode == nil },
		Want: func(in claimInput, _ claimAnswer) claimAnswer { return kubeletClaim(in.complete()) },
	}, {
		Name: "no migration", Reason: "in-tree volume types that Kubernetes has removed are not translated to CSI",
		When: func(in claimInput) bool { return in.PV != nil && in.PV.Spec.AWSElasticBlockStore != nil },
		Want: func(_ claimInput, kubelet claimAnswer) claimAnswer {
			if slices.Contains(beforePlugins, kubelet.Refused) {
				return kubelet
			}
			return refused("no plugin")
		},
	}, {
		Name: "no SELinux label without a level", Reason: "the kubelet generates a level, which is not the level of the container",
		When: claimInput.lacksSELinuxLevel,
	}, {
		Name: "no SELinux label of a block volume", Reason: "a block volume is not mounted; the kubelet refuses a second label anyway",
		When: func(in claimInput) bool { return in.PV != nil && isBlock(in.PV) && in.Mount },
		Want: func(in claimInput, _ claimAnswer) claimAnswer {
			in.Mount = false
			return kubeletClaim(in.complete())
		},
	}, {
		Name: "expansion without a size", Reason: "if the controller reports a state without a size, the size of the PV is used; the kubelet requests 0 bytes",
		When: claimInput.lacksExpansionSize,
		Want: func(in claimInput, _ claimAnswer) claimAnswer { return kubeletClaim(in.complete()) },
	}, {
		Name: "nothing to grow", Reason: "a plugin is not called for an expansion to the current size or a smaller one",
		When: func(in claimInput) bool {
			if !in.reportsExpansion() {
				return false
			}
			size, ok := in.allocated()
			return ok && size <= in.has()
		},
		Want: func(_ claimInput, kubelet claimAnswer) claimAnswer {
			kubelet.Expanded = ""
			return kubelet
		},
	}},
}

// beforePlugins are the classes of errors that are detected before the plugin is chosen.
var beforePlugins = []string{"no claim", "deleted", "not bound", "no volume name", "not owner", "no PV", "no claimRef", "other claim", "mode"}

// fromFile reports whether the first owner of the claim matches the pod by name only.
func (in claimInput) fromFile() bool {
	return in.Claim != nil && len(in.Claim.OwnerReferences) > 0 && in.Claim.OwnerReferences[0].UID == "" && in.Claim.OwnerReferences[0].Name == in.Pod.Name
}

// lacksExpansionSize reports whether the controller of the claim reports an expansion without a size.
func (in claimInput) lacksExpansionSize() bool {
	if !in.reportsExpansion() || in.PV == nil {
		return false
	}
	_, ok := in.allocated()
	return !ok
}

// complete adds the values that an API server sets, where ours assumes them.
func (in claimInput) complete() claimInput {
	if in.fromFile() {
		in.Claim = in.Claim.DeepCopy()
		in.Claim.OwnerReferences[0].UID = in.Pod.UID
	}
	if in.PV != nil && in.PV.Spec.VolumeMode == nil {
		in.PV = in.PV.DeepCopy()
		in.PV.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	}
	if in.lacksExpansionSize() {
		in.Claim = in.Claim.DeepCopy()
		in.Claim.Status.AllocatedResources = in.PV.Spec.Capacity
	}
	return in
}

// The generated inputs cover each class of refusal, and contain enough usable volumes and expansions.
func TestClaimInputs(t *testing.T) {
	seen := map[string]int{}
	for i := range uint64(4_000) {
		answer := kubeletClaim(makeClaim(conformance.NewChoices(conformance.RandomBytes(1, i))))
		seen[answer.Refused]++
		if answer.Expanded != "" {
			seen["expanded"]++
		}
	}
	for _, class := range claimClasses {
		if seen[class[0]] == 0 {
			t.Errorf("no input is refused as %q", class[0])
		}
	}
	if seen[""] < 700 || seen["expanded"] < 60 {
		t.Errorf("only %d volumes are usable, and %d expanded", seen[""], seen["expanded"])
	}
}
