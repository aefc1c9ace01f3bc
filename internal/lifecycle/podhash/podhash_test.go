// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podhash_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podhash"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// readPod returns the pod of a manifest with its defaults, without kind and apiVersion.
func readPod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), pod))
	pod.TypeMeta = metav1.TypeMeta{}
	podapi.Default(pod)
	podhash.Default(pod)
	return pod
}

// dumpOf returns the dump of a pod.
func dumpOf(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, podhash.Dump(&b, pod))
	return b.String()
}

// The first line of each file has the UID that the kubelet computes; a conformance test checks it. If a UID changed, the kubelet
// and this agent would replace the static pods of each other.
func TestNewContinuesToUIDOfKubelet(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 5)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		first, _, _ := strings.Cut(string(text), "\n")
		h := podhash.New(readPod(t, string(text)))
		fmt.Fprintf(h, "host:control-1file:/etc/kubernetes/manifests/%s", filepath.Base(file))
		assert.Equal(t, first, "# UID "+hex.EncodeToString(h.Sum(nil)), file)
	}
}

func TestDumpPrintsTypesValuesAndNil(t *testing.T) {
	text := dumpOf(t, readPod(t, `
metadata: {name: web, labels: {b: "2", a: "1"}, annotations: {}}
spec:
  nodeSelector: {}
  volumes: [{name: v, emptyDir: {sizeLimit: 1536Mi}}]
  containers: [{name: c, image: i, args: [], command: [x, ""], resources: {limits: {cpu: "99999999999999999999"}}}]
`))
	for _, part := range []string{
		"(*core.Pod){TypeMeta:(v1.TypeMeta){Kind:(string) APIVersion:(string)} ObjectMeta:(v1.ObjectMeta){Name:(string)web ",
		" CreationTimestamp:(v1.Time){Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}} DeletionTimestamp:(*v1.Time)<nil> ",
		" Labels:(map[string]string)map[a:1 b:2] Annotations:(map[string]string)map[] OwnerReferences:([]v1.OwnerReference)<nil> ",
		" Spec:(core.PodSpec){Volumes:([]core.Volume)[{Name:(string)v VolumeSource:(core.VolumeSource){HostPath:(*core.HostPathVolumeSource)<nil> ",
		" SizeLimit:(*resource.Quantity){i:(resource.int64Amount){value:(int64)1610612736 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string) Format:(resource.Format)BinarySI}",
		" Command:([]string)[x ] Args:([]string)[] ",
		"{Limits:(core.ResourceList)map[cpu:{i:(resource.int64Amount){value:(int64)0 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec){unscaled:(big.Int){neg:(bool)false abs:(big.nat)[",
		" TerminationGracePeriodSeconds:(*int64)30 ActiveDeadlineSeconds:(*int64)<nil> ",
		" Status:(core.PodStatus){",
	} {
		assert.Contains(t, text, part)
	}
	assert.NotContains(t, text, "0x", "the dump has no addresses")
}

// Equal amounts that are written in two ways have two hashes, as in the kubelet.
func TestDumpDistinguishesSpellingsAndNil(t *testing.T) {
	texts := map[string]string{} // text to spec
	for _, spec := range []string{
		"{}", "{nodeSelector: {}}", "{nodeSelector: {a: b}}", "{tolerations: []}", "{hostNetwork: true}", "{overhead: {cpu: 1000m}}", "{overhead: {cpu: 1}}",
		"{overhead: {cpu: '1e0'}}", "{overhead: {memory: 1Gi}}", "{overhead: {memory: 1024Mi}}",
	} {
		text := dumpOf(t, readPod(t, "spec: "+spec))
		assert.Empty(t, texts[text], "the pod equals that of %s", spec)
		texts[text] = spec
	}
	assert.Equal(t, dumpOf(t, readPod(t, "spec: {tolerations: null}")), dumpOf(t, readPod(t, "spec: {}")))
}

func TestDumpContainsLocalTimeZone(t *testing.T) {
	pod := &corev1.Pod{}
	pod.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local())
	assert.Contains(t, dumpOf(t, pod), "loc:(*time.Location){name:(string)")
	pod.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	assert.Contains(t, dumpOf(t, pod), "loc:(*time.Location)<nil>}")
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestDumpReturnsErrorOfWriter(t *testing.T) {
	err := errors.New("disk full")
	require.ErrorIs(t, podhash.Dump(failingWriter{err}, readPod(t, "spec: {}")), err)
}

// Dump has a format for each type in a pod: a version of the API with another kind of type needs a change of Dump.
func TestDumpSupportsAllTypesOfPod(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Struct:
			for f := range typ.Fields() {
				walk(path+"."+f.Name, f.Type)
			}
		case reflect.Pointer, reflect.Slice:
			// The kubelet prints a pointer in a list or map, or to a pointer, in another way.
			assert.NotEqual(t, reflect.Pointer, typ.Elem().Kind(), path)
			walk(path, typ.Elem())
		case reflect.Map:
			assert.Equal(t, reflect.String, typ.Key().Kind(), path)
			assert.NotEqual(t, reflect.Pointer, typ.Elem().Kind(), path)
			walk(path, typ.Elem())
		case reflect.Chan, reflect.Func, reflect.Interface, reflect.UnsafePointer, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128, reflect.Uintptr:
			assert.Fail(t, "no format", "%s: %s", path, typ)
		}
	}
	walk("pod", reflect.TypeFor[corev1.Pod]())
}

func TestDefaultSetsDefaultsThatNoNodeReads(t *testing.T) {
	pod := readPod(t, `
spec:
  volumes:
  - {name: a, iscsi: {targetPortal: p, iqn: i, lun: 1}}
  - {name: b, rbd: {monitors: [m], image: i, user: u}}
  - {name: c, azureDisk: {diskName: d, diskURI: u, fsType: xfs}}
  - {name: d, scaleIO: {gateway: g, system: s, secretRef: {name: secret}}}
  - {name: e, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 0.0001}}}}}}
status:
  podIPs: [{ip: 1.2.3.4}]
  containerStatuses: [{name: c, image: i, imageID: j, ready: true, restartCount: 1, resources: {limits: {cpu: 0.0001}}}]
`)
	volumes, status := pod.Spec.Volumes, pod.Status
	assert.Equal(t, "default", volumes[0].ISCSI.ISCSIInterface)
	assert.Equal(t, []string{"rbd", "u", "/etc/ceph/keyring"}, []string{volumes[1].RBD.RBDPool, volumes[1].RBD.RadosUser, volumes[1].RBD.Keyring})
	disk := volumes[2].AzureDisk
	assert.Equal(t, []string{"ReadWrite", "xfs", "Shared"}, []string{string(*disk.CachingMode), *disk.FSType, string(*disk.Kind)})
	assert.False(t, *disk.ReadOnly)
	assert.Equal(t, []string{"ThinProvisioned", "xfs"}, []string{volumes[3].ScaleIO.StorageMode, volumes[3].ScaleIO.FSType})
	assert.EqualValues(t, 1, volumes[4].Ephemeral.VolumeClaimTemplate.Spec.Resources.Requests.Storage().MilliValue())
	assert.Equal(t, "1.2.3.4", status.PodIP)
	assert.EqualValues(t, 1, status.ContainerStatuses[0].Resources.Limits.Cpu().MilliValue())

	pod = readPod(t, "status: {podIP: 1.2.3.4, podIPs: [{ip: 1.2.3.5}, {ip: 1.2.3.4}]}")
	assert.Equal(t, []corev1.PodIP{{IP: "1.2.3.4"}}, pod.Status.PodIPs, "podIP has priority")
}

// The kubelet's printer takes the time zone of a nested time for a cycle.
func TestDumpPrintsTimeZoneOnce(t *testing.T) {
	text := dumpOf(t, readPod(t, `
metadata: {creationTimestamp: "2026-01-02T03:04:05Z", deletionTimestamp: "2026-01-02T03:04:05Z"}
status:
  startTime: "2026-01-02T03:04:05Z"
  containerStatuses: [{name: c, image: i, imageID: j, ready: true, restartCount: 1, state: {running: {startedAt: "2026-01-02T03:04:05Z"}}}]
`))
	assert.Equal(t, 3, strings.Count(text, "loc:(*time.Location){name:"))
	assert.Equal(t, 1, strings.Count(text, "StartedAt:(v1.Time){Time:(time.Time){wall:(uint64)0 ext:(int64)63902919845 loc:(*time.Location)<shown>}}"))
}
