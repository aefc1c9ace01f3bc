// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/csitest"
)

// csiVolume is a volume of a pod, what its driver and the cluster are like, and which call fails.
type csiVolume struct {
	Kind     string // inline, filesystem or block
	Can      []spec.NodeServiceCapability_RPC_Type
	Object   *storagev1.CSIDriverSpec
	Inline   *corev1.CSIVolumeSource
	PV       *corev1.PersistentVolumeSpec
	ReadOnly bool
	Group    *int64
	Policy   *corev1.PodFSGroupChangePolicy
	Account  string
	Again    bool   // it is published a second time
	Label    string // of SELinux, which the volume is wanted with; empty: with none

	FailMethod string // empty: no call fails
	FailCode   codes.Code
	FailNumber int // of the calls of that method
}

// csiStep is what one step has come to.
type csiStep struct {
	Name   string
	Result string // "ok", "failed" without a call, or "final" or "uncertain"
	Calls  []string
	Files  []string
}

// The requests that a driver gets for generated volumes, the classes of errors, and what is on disk after each step.
func TestCSIRequests(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files away takes root")
	}
	kubelet, ours := newCSIKubelet(t), newCSIOurs(t)
	conformance.Comparison[csiVolume, []csiStep]{
		Make: newCSIVolume, Kubelet: kubelet.run, Ours: ours.run,
		Exceptions: []conformance.Exception[csiVolume, []csiStep]{{
			Name: "no globalmount without staging", Reason: "nothing is made for a driver that does not stage",
			When: func(in csiVolume) bool {
				return in.Kind == "filesystem" && !slices.Contains(in.Can, spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
			},
			Want: func(_ csiVolume, steps []csiStep) []csiStep {
				for i := range steps {
					steps[i].Files = slices.DeleteFunc(steps[i].Files, func(f string) bool { return strings.HasSuffix(f, "/globalmount") })
				}
				return steps
			},
		}, {
			Name: "no data of a block volume that was not staged", Reason: "the kubelet writes vol_data.json before it knows whether it can ask the driver, and leaves it",
			When: func(in csiVolume) bool { return in.Kind == "block" },
			Want: func(_ csiVolume, steps []csiStep) []csiStep {
				if steps[0].Result == "failed" {
					steps[0].Files = []string{}
				}
				return steps
			},
		}},
	}.Run(t, flags.AtMost(1_000)) // each is some twenty calls over sockets
}

func newCSIVolume(c *conformance.Choices) csiVolume {
	in := csiVolume{Kind: conformance.Pick(c, "filesystem", "inline", "block"), Account: conformance.Pick(c, "", "app")}
	for _, can := range csitest.AllCapabilities() {
		if c.Int(2) == 0 {
			in.Can = append(in.Can, can)
		}
	}
	if c.Int(4) > 0 {
		in.Object = newCSIObject(c)
	}
	if c.Int(2) == 0 {
		group := int64(1000)
		in.Group = &group
		in.Policy = conformance.Pick(c, nil, csiPointer(corev1.FSGroupChangeOnRootMismatch), csiPointer(corev1.FSGroupChangeAlways))
	}
	fsType := conformance.Pick(c, "", "ext4", "xfs")
	attributes := conformance.Pick(c, nil, map[string]string{}, map[string]string{"a": "b", "csi.storage.k8s.io/pod.name": "forged"})
	secret := func(namespace string) *corev1.SecretReference {
		return conformance.Pick(c, nil, &corev1.SecretReference{Namespace: namespace, Name: "key"}, &corev1.SecretReference{Namespace: namespace, Name: "missing"}, nil)
	}
	if in.Kind == "inline" {
		in.Inline = &corev1.CSIVolumeSource{Driver: csiDriver, VolumeAttributes: attributes, ReadOnly: conformance.Pick(c, nil, csiPointer(true), csiPointer(false))}
		if fsType != "" || c.OneIn(2) {
			in.Inline.FSType = &fsType
		}
		if ref := secret(csiNamespace); ref != nil {
			in.Inline.NodePublishSecretRef = &corev1.LocalObjectReference{Name: ref.Name}
		}
	} else {
		in.ReadOnly = c.OneIn(3)
		in.PV = &corev1.PersistentVolumeSpec{
			AccessModes: conformance.Pick(c, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, nil, []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
				[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOnce}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}),
			MountOptions: conformance.Pick(c, nil, []string{"noatime", "ro"}),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: csiDriver, VolumeHandle: conformance.Pick(c, "attached", "attached", "attached", "unknown"), FSType: fsType, VolumeAttributes: attributes,
				NodeStageSecretRef: secret("infra"), NodePublishSecretRef: secret("infra"),
			}},
		}
	}
	in.Again = c.OneIn(2)
	if in.Kind == "filesystem" {
		in.Label = conformance.Pick(c, "", "", "system_u:object_r:container_file_t:s0:c1,c2")
	}
	if c.OneIn(2) {
		in.FailMethod = conformance.Pick(c, "NodePublishVolume", "NodeStageVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
		in.FailCode = codes.Code(1 + c.Int(16))
		in.FailNumber = 1 + c.Int(2)
	}
	return in
}

func newCSIObject(c *conformance.Choices) *storagev1.CSIDriverSpec {
	o := &storagev1.CSIDriverSpec{
		AttachRequired: csiPointer(c.Int(2) == 0), PodInfoOnMount: csiPointer(c.Int(2) == 0), RequiresRepublish: csiPointer(false),
		FSGroupPolicy: csiPointer(conformance.Pick(c, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy)),
		VolumeLifecycleModes: conformance.Pick(c, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
			[]storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}),
		ServiceAccountTokenInSecrets: conformance.Pick(c, nil, csiPointer(true), csiPointer(false)),
		SELinuxMount:                 conformance.Pick(c, nil, csiPointer(true), csiPointer(true), csiPointer(false)),
	}
	for _, audience := range []string{"", "vault"} {
		if c.OneIn(3) {
			o.TokenRequests = append(o.TokenRequests, storagev1.TokenRequest{Audience: audience, ExpirationSeconds: conformance.Pick(c, nil, csiPointer(int64(600)))})
		}
	}
	return o
}

func csiPointer[T any](v T) *T { return &v }

// The names of what there is.
const (
	csiDriver    = "csi.example"
	csiNamespace = "shop"
	csiNode      = "n1"
	csiPV        = "pv1"
)

// csiPod returns the pod of a volume.
func (in csiVolume) pod() *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: csiNamespace, Name: "web", UID: "uid-1"}, Spec: corev1.PodSpec{ServiceAccountName: in.Account}}
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: in.Group, FSGroupChangePolicy: in.Policy}
	v := corev1.Volume{Name: "data"}
	if in.Kind == "inline" {
		v.CSI = in.Inline.DeepCopy()
	} else {
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim", ReadOnly: in.ReadOnly}
	}
	p.Spec.Volumes = []corev1.Volume{v}
	return p
}

func (in csiVolume) pv() *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	if in.Kind == "block" {
		mode = corev1.PersistentVolumeBlock
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: csiPV}, Spec: *in.PV.DeepCopy()}
	pv.Spec.VolumeMode = &mode
	return pv
}

// csiSide is one of the two, with a driver of its own. It runs one input at a time.
type csiSide struct {
	mu     sync.Mutex
	root   string
	driver *csitest.Driver

	in     csiVolume
	failed int // how many calls there were of the method that is to fail
	steps  []csiStep
}

func newCSISide(t *testing.T, registry string) *csiSide {
	s := &csiSide{root: t.TempDir()}
	s.driver = csitest.Start(t, csitest.Options{Name: csiDriver, Registry: registry, BeforeCall: s.fault})
	return s
}

// fault has the call of the input fail.
func (s *csiSide) fault(_ context.Context, c csitest.Call) error {
	if c.Method != s.in.FailMethod {
		return nil
	}
	if s.failed++; s.failed == s.in.FailNumber {
		return status.Error(s.in.FailCode, "as told")
	}
	return nil
}

// begin prepares for an input.
func (s *csiSide) begin(in csiVolume) {
	s.in, s.failed, s.steps = in, 0, nil
	s.driver.SetCapabilities(in.Can...)
	s.driver.ClearCalls()
	for _, dir := range []string{"pods", "plugins"} {
		_ = os.RemoveAll(filepath.Join(s.root, dir))
	}
	for _, dir := range []string{"pods/uid-1/volumes/kubernetes.io~csi", "plugins"} {
		if err := os.MkdirAll(filepath.Join(s.root, dir), 0o750); err != nil {
			panic(err)
		}
	}
}

// note notes what a step has come to, and reports whether it has succeeded, and whether something may be left of it.
func (s *csiSide) note(name string, err error, final bool) (ok, left bool) {
	step := csiStep{Name: name, Result: "ok", Calls: []string{}}
	for _, c := range s.driver.Calls() {
		text := strings.ReplaceAll(csiText(c.Request), s.root, "ROOT")
		step.Calls = append(step.Calls, c.Method+" "+text)
	}
	s.driver.ClearCalls()
	switch {
	case err == nil:
	case len(step.Calls) == 0:
		step.Result = "failed"
	case strings.HasPrefix(name, "un") || name == "again":
		step.Result = "failed in a call" // there is no class: it is tried again
	case final:
		step.Result = "final"
	default:
		step.Result = "uncertain"
	}
	step.Files = s.files()
	s.steps = append(s.steps, step)
	return err == nil, err == nil || step.Result == "uncertain"
}

// files returns what is on disk, of directories only those that volumes are mounted on.
func (s *csiSide) files() []string {
	found := []string{}
	err := filepath.WalkDir(s.root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil // it is gone
		}
		info, err := d.Info()
		if err != nil {
			return nil // it is gone
		}
		rel, _ := filepath.Rel(s.root, path)
		switch base := filepath.Base(path); {
		case base == "vol_data.json":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found = append(found, rel+" "+strings.TrimSpace(string(text)))
		case base == "mount":
			found = append(found, fmt.Sprintf("%s %v %d", rel, info.Mode(), csiGroup(info)))
		case base == "globalmount" || !d.IsDir():
			found = append(found, rel)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return found
}
