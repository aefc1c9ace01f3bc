// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podvolume"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/selinux"
	"github.com/seed81659283/nodeagent/volume"
)

// ourClaimClasses maps the classes of claimClasses to texts in our errors.
var ourClaimClasses = [][2]string{
	{"no claim", errNoClaim.Error()},
	{"deleted", "PVC is being deleted"},
	{"not bound", "PVC is not bound"},
	{"no volume name", "PVC has empty pvc.Spec.VolumeName"},
	{"not owner", "pod is not owner"},
	{"no PV", errNoVolume.Error()},
	{"no claimRef", "has no claimRef"},
	{"other claim", "the claimRef of PV"},
	{"mode", "has volumeMode"},
	{"no plugin", "there is no plugin for"},
	{"no block", "cannot be block devices"},
	{"options", "mount options are not supported"},
	{"several labels", "multiple SELinux labels found"},
	{"other label", "conflicting SELinux labels of volume"},
	{"in use", claim.ErrInUse.Error()},
	{"affinity", "PV " + claimPV + ": "},
}

var errNoClaim, errNoVolume = errors.New("there is no such claim"), errors.New("there is no such PV")

// PersistentVolumeClaim returns the claim of the input.
func (in claimInput) PersistentVolumeClaim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	if in.Claim == nil || in.Claim.Namespace != namespace || in.Claim.Name != name {
		return nil, errNoClaim
	}
	return in.Claim, nil
}

// PersistentVolume returns the volume of the input.
func (in claimInput) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	if in.PV == nil || in.PV.Name != name {
		return nil, errNoVolume
	}
	return in.PV, nil
}

// ourClaim calls package claim in the same order as the kubelet.
func ourClaim(in claimInput) claimAnswer {
	if err := in.check(); err != nil {
		return refused(claimClass(err.Error(), ourClaimClasses))
	}
	v, pv := &in.Pod.Spec.Volumes[0], in.PV
	answer := claimAnswer{PV: pv.Name, ReadOnly: claim.IsReadOnly(v), Block: claim.IsBlock(pv), Group: group(in.Pod, pv)}
	source := podvolume.PVSourceOf(pv)
	answer.Plugin = map[string]string{"csi": volume.CSI, "nfs": volume.NFS, "hostPath": volume.HostPath}[source]
	staged := answer.Plugin == volume.CSI
	label, other, err := in.labels(staged && !answer.Block)
	answer.Label = label
	options := claim.MountOptions(pv)
	switch {
	case answer.Plugin == "":
		return refused("no plugin")
	case answer.Block && !staged:
		return refused("no block")
	case err != nil:
		return refused(claimClass(err.Error(), ourClaimClasses))
	case in.Taken && staged && selinux.CheckConflict(pv.Name, other, label) != nil:
		return refused("other label")
	case in.Known == 0 && claim.CheckAffinity(pv, in.Node) != nil:
		return refused("affinity")
	case in.Known == 0 && !answer.Block && len(options) > 0 && answer.Plugin == volume.HostPath:
		return refused("options")
	case in.Known == 0 && staged && in.Taken && claim.IsReadWriteOncePod(pv):
		return refused("in use")
	}
	if !answer.Block && len(options) > 0 {
		answer.Options = options
	}
	if g, due := claim.PlanExpansion(in.Claim, pv, in.Known); due && staged && !answer.ReadOnly {
		answer.Expanded = expansion(g.OldSize, g.NewSize)
	}
	return answer
}

// selinuxNode is a node with the SELinux labels of the kubelet's fake.
var selinuxNode = selinux.Node{Enabled: true, DefaultFileLabel: "system_u:object_r:container_file_t:s0"}

// labels returns the SELinux mount labels of the volume for the pod and for the other pod.
func (in claimInput) labels(can bool) (own, other string, err error) {
	own, err = selinuxNode.MountLabel(in.Pod, "v")
	if err != nil || !can || !in.Mount {
		return "", "", err
	}
	other, err = selinuxNode.MountLabel(in.otherPod(), "v")
	return own, other, err
}

// check fetches the claim and its PersistentVolume, and checks both.
func (in claimInput) check() error {
	v, ctx := &in.Pod.Spec.Volumes[0], context.Background()
	name, ok := claim.NameOf(in.Pod, v)
	if !ok {
		return errors.New("the volume has no claim")
	}
	pvc, err := in.PersistentVolumeClaim(ctx, in.Pod.Namespace, name)
	if err == nil {
		err = claim.CheckClaim(in.Pod, v, pvc)
	}
	if err != nil {
		return err
	}
	pv, err := in.PersistentVolume(ctx, pvc.Spec.VolumeName)
	if err == nil {
		err = claim.CheckPV(in.Pod, v, pvc, pv)
	}
	return err
}

// group returns the supplemental group that the volume adds to the pod, or -1.
func group(pod *corev1.Pod, pv *corev1.PersistentVolume) int64 {
	gid, ok := claim.SupplementalGroup(pv)
	if sc := pod.Spec.SecurityContext; ok && sc != nil {
		for _, has := range sc.SupplementalGroups {
			ok = ok && has != gid
		}
	}
	if !ok {
		return -1
	}
	return gid
}

// ourVolumes returns a function that prepares the pod with a new Volumes.
func ourVolumes(t *testing.T) func(claimInput) claimAnswer {
	root := t.TempDir()
	var mu sync.Mutex
	number := 0
	return func(in claimInput) claimAnswer {
		mu.Lock()
		number++
		dir := filepath.Join(root, fmt.Sprint(number))
		mu.Unlock()
		defer os.RemoveAll(dir)
		n := &claimNode{claimInput: in}
		return n.run(dir)
	}
}

// claimNode is a node with plugins that do nothing on the host.
type claimNode struct {
	claimInput

	mu      sync.Mutex // guards the fields below
	other   bool       // serve the objects of the other pod, which may use the volume
	answer  claimAnswer
	failed  error // of the first failed step
	failing func()
}

func (n *claimNode) run(dir string) claimAnswer {
	plain, staging := &claimSetUp{n: n}, &claimStager{claimSetUp{n: n}}
	v, err := volume.New(volume.Options{
		Root: filepath.Join(dir, "pods"), Claims: n, SELinux: volume.SELinux{Enabled: selinuxNode.Enabled, FileLabel: selinuxNode.DefaultFileLabel}, NodeLabels: func() map[string]string { return n.Node },
		Plugins: map[string]volume.Plugin{volume.CSI: staging, volume.NFS: plain, volume.HostPath: plain},
		Hooks:   volume.Hooks{StepCompleted: func(_ string, _ volume.Step, _ time.Duration, err error) { n.step(err) }},
	})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { must(v.Run(ctx)) })
	defer running.Wait()
	defer cancel()
	if n.Taken && n.PV != nil {
		n.other = true
		must(v.Prepare(ctx, n.otherPod()))
		n.other = false
	}
	if err := n.prepare(ctx, v); err != nil {
		return refused(claimClass(err.Error(), ourClaimClasses))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer.PV, n.answer.Block, n.answer.Group = n.PV.Name, claim.IsBlock(n.PV), -1
	for _, gid := range v.SupplementalGroups(n.Pod) {
		n.answer.Group = gid
	}
	return n.answer
}

// prepare prepares the pod, and returns at the first failed step.
func (n *claimNode) prepare(ctx context.Context, v *volume.Volumes) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n.mu.Lock()
	n.failing = cancel
	n.mu.Unlock()
	err := v.Prepare(ctx, n.Pod)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed != nil {
		return n.failed
	}
	return err
}

func (n *claimNode) step(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && n.failed == nil && n.failing != nil {
		n.failed = err
		n.failing()
	}
}

// otherPod returns a valid pod that uses a second claim on the same volume.
func (in claimInput) otherPod() *corev1.Pod {
	p := in.Pod.DeepCopy()
	p.Name, p.UID = "other", "uid-other"
	p.Spec = corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v"}}, Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}}}
	if in.Other != "" {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: in.Other}}
	}
	p.Spec.Volumes[0].PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "other"}
	return p
}

// PersistentVolumeClaim returns the claim of the input, or the claim of the other pod.
func (n *claimNode) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	if !n.other {
		return n.claimInput.PersistentVolumeClaim(ctx, namespace, name)
	}
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Namespace, pvc.Name, pvc.UID = namespace, name, "claim-other"
	pvc.Spec.VolumeName, pvc.Status.Phase = n.PV.Name, corev1.ClaimBound
	return pvc, nil
}

// PersistentVolume returns the volume of the input, or a volume with this name that the other pod can use.
func (n *claimNode) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	if !n.other {
		return n.claimInput.PersistentVolume(ctx, name)
	}
	pv := &corev1.PersistentVolume{}
	pv.Name = name
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "h"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: n.Pod.Namespace, Name: "other", UID: "claim-other"}
	return pv, nil
}

// claimSetUp is a plugin that does nothing on the host.
type claimSetUp struct{ n *claimNode }

func (p *claimSetUp) SetUp(_ context.Context, v volume.Volume) (volume.Mount, error) {
	if v.UID == string(claimPod) {
		p.n.mu.Lock()
		defer p.n.mu.Unlock()
		p.n.answer.Plugin, p.n.answer.ReadOnly, p.n.answer.Label = v.Plugin, v.ReadOnly, v.SELinuxLabel
		if len(v.MountOptions) > 0 {
			p.n.answer.Options = v.MountOptions
		}
	}
	return volume.Mount{HostPath: v.Dir}, nil
}

func (*claimSetUp) TearDown(context.Context, volume.Volume) error { return nil }

// claimStager also stages and expands.
type claimStager struct{ claimSetUp }

func (*claimStager) Device(_ context.Context, v volume.Volume) (volume.Device, error) {
	return volume.Device{Name: v.SpecName}, nil
}

func (p *claimStager) MountsWithLabel(context.Context, volume.Volume) (bool, error) {
	return p.n.Mount, nil
}

func (*claimStager) Stage(context.Context, volume.Volume) error   { return nil }
func (*claimStager) Unstage(context.Context, volume.Volume) error { return nil }

func (p *claimStager) NodeExpand(_ context.Context, v volume.Volume, e volume.Expansion) error {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	p.n.answer.Expanded = expansion(e.OldSize, e.NewSize)
	return nil
}
