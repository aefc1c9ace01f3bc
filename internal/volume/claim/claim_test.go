// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
)

// boundClaim returns a pod that mounts a claim, the claim, and the PV that the claim is bound to.
func boundClaim(t *testing.T) (*corev1.Pod, *corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	pod := podtest.Pod(t, `{volumes: [{name: data, persistentVolumeClaim: {claimName: db}}],
		containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /data}]}]}`)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "c1"}}
	pvc.Spec.VolumeName, pvc.Status.Phase = "pv1", corev1.ClaimBound
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}}
	pv.Spec.ClaimRef, pv.Spec.VolumeMode = &corev1.ObjectReference{Namespace: "default", Name: "db", UID: "c1"}, new(corev1.PersistentVolumeFilesystem)
	return pod, pvc, pv
}

func checkVolume(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	v := &pod.Spec.Volumes[0]
	if err := claim.CheckClaim(pod, v, pvc); err != nil {
		return err
	}
	return claim.CheckPV(pod, v, pvc, pv)
}

// ephemeral makes the volume of pod a generic ephemeral volume whose claim has this owner.
func ephemeral(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, owner metav1.OwnerReference) {
	pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	owner.Controller = new(true)
	pvc.Name, pvc.OwnerReferences = pod.Name+"-data", []metav1.OwnerReference{owner}
	pv.Spec.ClaimRef.Name = pvc.Name
}

// fromFiles removes the UIDs, which objects from files do not have.
func fromFiles(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	pvc.UID, pv.Spec.ClaimRef.UID = "", ""
}

func TestCheckClaimAndPV(t *testing.T) {
	type objects = func(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume)
	for name, test := range map[string]struct {
		change objects
		want   string // empty: the pod may use the claim
	}{
		"bound": {func(*corev1.Pod, *corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {}, ""},
		"pending": {func(_ *corev1.Pod, pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			pvc.Status.Phase = corev1.ClaimPending
		}, "error processing PVC default/db: PVC is not bound"},
		"lost": {func(_ *corev1.Pod, pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			pvc.Status.Phase = corev1.ClaimLost
		}, "PVC is not bound"},
		"no volume": {func(_ *corev1.Pod, pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			pvc.Spec.VolumeName = ""
		}, "PVC has empty pvc.Spec.VolumeName"},
		"deleted": {func(_ *corev1.Pod, pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			pvc.DeletionTimestamp = new(metav1.Now())
		}, "PVC is being deleted"},
		"deleted, in use": {func(_ *corev1.Pod, pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			pvc.DeletionTimestamp, pvc.Finalizers = new(metav1.Now()), []string{"other", "kubernetes.io/pvc-protection"}
		}, ""},
		"no claimRef": {func(_ *corev1.Pod, _ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef = nil
		}, "PV pv1 has no claimRef"},
		"bound to another claim": {func(_ *corev1.Pod, pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			pvc.UID = "c2"
		}, `the claimRef of PV pv1 has UID "c1", that of the claim is "c2"`},
		"from files": {func(_ *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			fromFiles(pvc, pv)
		}, ""},
		"from files, bound to another claim": {func(_ *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			fromFiles(pvc, pv)
			pv.Spec.ClaimRef.Name = "logs"
		}, "the claimRef of PV pv1 is of claim default/logs"},
		"from files, bound to a claim of another namespace": {func(_ *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			fromFiles(pvc, pv)
			pv.Spec.ClaimRef.Namespace = "other"
		}, "the claimRef of PV pv1 is of claim other/db"},
		"block volume in volumeMounts": {func(_ *corev1.Pod, _ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
		}, "volume data has volumeMode Block, but is specified in volumeMounts"},
		"a device": {func(pod *corev1.Pod, _ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
			c := &pod.Spec.Containers[0]
			c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
		}, ""},
		"file system volume in volumeDevices": {func(pod *corev1.Pod, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
		}, "volume data has volumeMode Filesystem, but is specified in volumeDevices"},
		"unknown volume mode": {func(_ *corev1.Pod, _ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Spec.VolumeMode = new(corev1.PersistentVolumeMode("Object"))
		}, "volume data has volumeMode Object, but is specified in volumeMounts"},
		"no mode": {func(_ *corev1.Pod, _ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Spec.VolumeMode = nil
		}, ""},
		"ephemeral": {func(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			ephemeral(pod, pvc, pv, metav1.OwnerReference{Kind: "Pod", Name: pod.Name, UID: pod.UID})
		}, ""},
		"ephemeral, claim of another pod": {func(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			ephemeral(pod, pvc, pv, metav1.OwnerReference{Kind: "Pod", Name: pod.Name, UID: "other"})
		}, "PVC was not created for pod"},
		"ephemeral, claim without owner": {func(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			ephemeral(pod, pvc, pv, metav1.OwnerReference{})
			pvc.OwnerReferences = nil
		}, "PVC was not created for pod"},
		"ephemeral, from a file": {func(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			ephemeral(pod, pvc, pv, metav1.OwnerReference{Kind: "Pod", Name: pod.Name})
		}, ""},
		"ephemeral, from a file, claim of another pod": {func(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			ephemeral(pod, pvc, pv, metav1.OwnerReference{Kind: "Pod", Name: "other"})
		}, "PVC was not created for pod"},
		"ephemeral, claim in another namespace": {func(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			ephemeral(pod, pvc, pv, metav1.OwnerReference{Kind: "Pod", Name: pod.Name, UID: pod.UID})
			pvc.Namespace = "other"
		}, "PVC was not created for pod"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, pvc, pv := boundClaim(t)
			test.change(pod, pvc, pv)
			err := checkVolume(pod, pvc, pv)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
				require.ErrorContains(t, err, "error processing PVC "+pvc.Namespace+"/"+pvc.Name)
			}
		})
	}
}

func TestNameOfClaim(t *testing.T) {
	pod, _, _ := boundClaim(t)
	name, ok := claim.NameOf(pod, &pod.Spec.Volumes[0])
	assert.Equal(t, []any{"db", true}, []any{name, ok})
	name, ok = claim.NameOf(pod, &corev1.Volume{Name: "x", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	assert.Equal(t, []any{pod.Name + "-x", true}, []any{name, ok})
	_, ok = claim.NameOf(pod, &corev1.Volume{Name: "x"})
	assert.False(t, ok)
}

func TestMountOptionsSortedWithoutDuplicates(t *testing.T) {
	_, _, pv := boundClaim(t)
	assert.Empty(t, claim.MountOptions(pv))
	pv.Spec.MountOptions = []string{"nolock", "hard", "", "nolock"}
	assert.Equal(t, []string{"hard", "nolock"}, claim.MountOptions(pv))
	assert.Equal(t, []string{"nolock", "hard", "", "nolock"}, pv.Spec.MountOptions, "MountOptions does not modify the PV")
	pv.Annotations = map[string]string{corev1.MountOptionAnnotation: "soft,,ro"}
	assert.Equal(t, []string{"ro", "soft"}, claim.MountOptions(pv))
}

func TestSupplementalGroupOfAnnotation(t *testing.T) {
	_, _, pv := boundClaim(t)
	for text, want := range map[string]int64{"1234": 1234, "x": -1, "": -1, " 1": -1, "0x10": -1} {
		pv.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": text}
		gid, ok := claim.SupplementalGroup(pv)
		assert.Equal(t, want >= 0, ok, text)
		if ok {
			assert.Equal(t, want, gid)
		}
	}
}

func TestCheckAffinityMatchesNodeLabels(t *testing.T) {
	labels := map[string]string{"kubernetes.io/hostname": "n1", "zone": "a", "cpus": "8"}
	expression := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	field := func(op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: op, Values: values}}}
	}
	for name, test := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  string
	}{
		"this node":                      {[]corev1.NodeSelectorTerm{expression("kubernetes.io/hostname", "In", "n0", "n1")}, ""},
		"another node":                   {[]corev1.NodeSelectorTerm{expression("kubernetes.io/hostname", "In", "n2")}, "PV pv1: no matching NodeSelectorTerms"},
		"this node excluded":             {[]corev1.NodeSelectorTerm{expression("kubernetes.io/hostname", "NotIn", "n1")}, "no matching NodeSelectorTerms"},
		"second of two terms matches":    {[]corev1.NodeSelectorTerm{expression("zone", "In", "b"), expression("cpus", "Gt", "4")}, ""},
		"fewer CPUs":                     {[]corev1.NodeSelectorTerm{expression("cpus", "Lt", "4")}, "no matching NodeSelectorTerms"},
		"there":                          {[]corev1.NodeSelectorTerm{expression("zone", "Exists")}, ""},
		"label must not exist":           {[]corev1.NodeSelectorTerm{expression("zone", "DoesNotExist")}, "no matching NodeSelectorTerms"},
		"no terms":                       {nil, "no matching NodeSelectorTerms"},
		"empty term":                     {[]corev1.NodeSelectorTerm{{}}, "no matching NodeSelectorTerms"},
		"unknown operator":               {[]corev1.NodeSelectorTerm{expression("zone", "Near", "a")}, `nodeSelectorTerms[0]: operator "Near" of label "zone" is not supported`},
		"invalid term and matching term": {[]corev1.NodeSelectorTerm{expression("zone", "Near", "a"), expression("zone", "Exists")}, ""},
		"no values":                      {[]corev1.NodeSelectorTerm{expression("zone", "In")}, "nodeSelectorTerms[0]: "},
		"a field":                        {[]corev1.NodeSelectorTerm{field("In", "n2")}, ""},
		"field with two values":          {[]corev1.NodeSelectorTerm{field("In", "n1", "n2")}, "must have one element in values"},
		"unknown field operator":         {[]corev1.NodeSelectorTerm{field("Exists")}, `operator "Exists" of field "metadata.name" is not supported`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, pv := boundClaim(t)
			require.NoError(t, claim.CheckAffinity(pv, labels))
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: test.terms}}
			err := claim.CheckAffinity(pv, labels)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}

func TestPlanExpansionByClaimStatus(t *testing.T) {
	gib := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(n<<30, resource.BinarySI)}
	}
	status := func(s corev1.ClaimResourceStatus) map[corev1.ResourceName]corev1.ClaimResourceStatus {
		return map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: s}
	}
	for name, test := range map[string]struct {
		capacity, pvCapacity, nodeSize int64 // sizes in GiB
		change                         func(pvc *corev1.PersistentVolumeClaim)
		old, new                       int64
		due                            bool
	}{
		"no change":                {capacity: 1, pvCapacity: 1, old: 1, new: 1},
		"larger":                   {capacity: 1, pvCapacity: 2, old: 1, new: 2, due: true},
		"smaller":                  {capacity: 2, pvCapacity: 1, old: 2, new: 1},
		"expanded on this node":    {capacity: 1, pvCapacity: 2, nodeSize: 2, old: 2, new: 2},
		"expanded on another node": {capacity: 2, pvCapacity: 2, nodeSize: 1, old: 1, new: 2, due: true},
		"pending": {capacity: 1, pvCapacity: 3, old: 1, new: 2, due: true, change: func(pvc *corev1.PersistentVolumeClaim) {
			pvc.Status.AllocatedResources, pvc.Status.AllocatedResourceStatuses = gib(2), status(corev1.PersistentVolumeClaimNodeResizePending)
		}},
		"expansion by the controller in progress": {capacity: 1, pvCapacity: 2, old: 1, new: 2, change: func(pvc *corev1.PersistentVolumeClaim) {
			pvc.Status.AllocatedResources, pvc.Status.AllocatedResourceStatuses = gib(2), status(corev1.PersistentVolumeClaimControllerResizeInProgress)
		}},
		"shared, expanded on another node": {capacity: 2, pvCapacity: 2, nodeSize: 1, old: 1, new: 2, due: true, change: func(pvc *corev1.PersistentVolumeClaim) {
			pvc.Status.AllocatedResources, pvc.Spec.AccessModes = gib(2), []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}},
		"shared, no node expansion required": {capacity: 2, pvCapacity: 2, nodeSize: 1, old: 1, new: 2, change: func(pvc *corev1.PersistentVolumeClaim) {
			pvc.Status.AllocatedResources, pvc.Spec.AccessModes = gib(2), []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
			pvc.Annotations = map[string]string{"volume.kubernetes.io/node-expansion-not-required": ""}
		}},
		"expanded by the controller": {capacity: 2, pvCapacity: 2, nodeSize: 1, old: 1, new: 2, change: func(pvc *corev1.PersistentVolumeClaim) {
			pvc.Status.AllocatedResources = gib(2)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, pvc, pv := boundClaim(t)
			pvc.Status.Capacity, pv.Spec.Capacity = gib(test.capacity), gib(test.pvCapacity)
			if test.change != nil {
				test.change(pvc)
			}
			g, due := claim.PlanExpansion(pvc, pv, test.nodeSize<<30)
			assert.Equal(t, claim.Expansion{OldSize: test.old << 30, NewSize: test.new << 30}, g)
			assert.Equal(t, test.due, due)
		})
	}
}
