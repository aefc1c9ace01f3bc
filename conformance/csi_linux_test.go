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

// csiVolume is a volume of a pod, the properties of its driver and of the cluster, and the call that fails.
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
	Again    bool   // publish the volume a second time
	Label    string // SELinux mount label; empty: none

	FailMethod string // empty: no call fails
	FailCode   codes.Code
	FailNumber int // which call of FailMethod fails, from 1
}

// csiStep is the result of one step.
type csiStep struct {
	Name   string
	Result string // "ok"; "failed" without a call; "failed in a call" in a teardown or a repeated publish; "final" or "uncertain" otherwise
	Calls  []string
	Files  []string
}

// The driver gets the same requests for generated volumes, errors have the same class, and the same files exist after each
// step.
func TestCSIRequests(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing file owners needs root")
	}
	kubelet, ours := newCSIKubelet(t), newCSIOurs(t)
	conformance.Comparison[csiVolume, []csiStep]{
		Make: newCSIVolume, Kubelet: kubelet.run, Ours: ours.run,
		Exceptions: []conformance.Exception[csiVolume, []csiStep]{{
			Name: "no globalmount without staging", Reason: "no directory is created for a driver that does not stage",
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
			Name: "no data of a block volume that was not staged", Reason: "the kubelet writes vol_data.json before it checks whether it can call the driver, and does not remove it",
			When: func(in csiVolume) bool { return in.Kind == "block" },
			Want: func(_ csiVolume, steps []csiStep) []csiStep {
				if steps[0].Result == "failed" {
					steps[0].Files = []string{}
				}
				return steps
			},
		}},
	}.Run(t, flags.AtMost(1_000)) // each input causes some twenty calls over sockets
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

// Names of the objects.
const (
	csiDriver    = "csi.example"
	csiNamespace = "shop"
	csiNode      = "n1"
	csiPV        = "pv1"
)

// pod returns the pod of a volume.
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

// csiSide is the kubelet's plugin or ours, with its own driver. It runs one input at a time.
type csiSide struct {
	mu     sync.Mutex
	root   string
	driver *csitest.Driver

	in     csiVolume
	failed int // number of calls of FailMethod so far
	steps  []csiStep
}

func newCSISide(t *testing.T, registry string) *csiSide {
	s := &csiSide{root: t.TempDir()}
	s.driver = csitest.Start(t, csitest.Options{Name: csiDriver, Registry: registry, BeforeCall: s.fault})
	return s
}

// fault fails the call that the input selects.
func (s *csiSide) fault(_ context.Context, c csitest.Call) error {
	if c.Method != s.in.FailMethod {
		return nil
	}
	if s.failed++; s.failed == s.in.FailNumber {
		return status.Error(s.in.FailCode, "as told")
	}
	return nil
}

// begin resets the side for an input.
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

// note records the result of a step. ok reports whether it has succeeded, and left whether it may have left state on the
// node.
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
		step.Result = "failed in a call" // these steps have no error class: they are retried
	case final:
		step.Result = "final"
	default:
		step.Result = "uncertain"
	}
	step.Files = s.files()
	s.steps = append(s.steps, step)
	return err == nil, err == nil || step.Result == "uncertain"
}

// files returns the files on disk, and the directories on which volumes are mounted.
func (s *csiSide) files() []string {
	found := []string{}
	err := filepath.WalkDir(s.root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil // removed during the walk
		}
		info, err := d.Info()
		if err != nil {
			return nil // removed during the walk
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
