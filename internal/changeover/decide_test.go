// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package changeover_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/changeover"
	"github.com/seed81659283/nodeagent/internal/lifecycle/ownership"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// created is when the pods of the tests were created.
func created() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// newPod returns a running pod with one container, as the API server has it.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(created())},
		Spec: corev1.PodSpec{
			NodeName: "node", RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: new(int64(30)),
			Containers: []corev1.Container{{Name: "main", Image: "nginx:1"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// observe returns the sandbox and the running containers of a pod, as a kubelet has created them.
func observe(pod *corev1.Pod) cri.Pod {
	identity := cri.PodIdentity{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
	observed := cri.Pod{PodIdentity: identity, Sandboxes: []cri.Sandbox{{
		ID: "s-" + pod.Name, Pod: identity, State: cri.SandboxReady, CreatedAt: created(), IPs: []string{"10.1.0.5"},
	}}}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		observed.Containers = append(observed.Containers, cri.Container{
			ID: "c-" + pod.Name + c.Name, SandboxID: "s-" + pod.Name, PodUID: string(pod.UID), Name: c.Name, State: cri.ContainerRunning,
			CreatedAt: created(), StartedAt: created(), Annotations: map[string]string{podspec.AnnotationHash: podspec.Hash(c)},
		})
	}
	return observed
}

// newNode returns a node of a cluster in the place of whose kubelet an agent is to run.
func newNode(pods ...changeover.Pod) changeover.Node {
	return changeover.Node{
		Now: created().Add(time.Hour), Owner: ownership.Owner{Mark: "agent", AdoptsUnlabeled: true}, Cluster: true, AllListed: true, Pods: pods,
	}
}

// Each reason that changes a running pod is found, and names the container, field or object.
func TestDecideNamesReasonOfEachChange(t *testing.T) {
	const gpu = "example.com/gpu"
	for _, c := range []struct {
		name    string
		change  func(pod *corev1.Pod, p *changeover.Pod, n *changeover.Node) // of a pod that keeps running
		outcome changeover.Outcome
		reason  string
	}{
		{"unchanged", func(*corev1.Pod, *changeover.Pod, *changeover.Node) {}, changeover.Keeps, ""},
		{"no container runs", func(_ *corev1.Pod, p *changeover.Pod, _ *changeover.Node) { p.Observed = cri.Pod{} }, changeover.Keeps, ""},
		{"unlisted record", func(_ *corev1.Pod, p *changeover.Pod, _ *changeover.Node) {
			p.Volumes = []string{"volumes/kubernetes.io~csi/pv"}
		}, changeover.Keeps, ""},
		{"another image", func(pod *corev1.Pod, _ *changeover.Pod, _ *changeover.Node) { pod.Spec.Containers[0].Image = "nginx:2" }, changeover.Restarts, "container main: "},
		{"no cgroup", func(_ *corev1.Pod, p *changeover.Pod, _ *changeover.Node) { p.CgroupMissing = true }, changeover.Restarts, "the cgroup of the pod is missing"},
		{"stopped sandbox", func(_ *corev1.Pod, p *changeover.Pod, _ *changeover.Node) {
			p.Observed.Sandboxes[0].State = cri.SandboxNotReady
		}, changeover.Restarts, "its sandbox is replaced: "},
		{"another agent", func(_ *corev1.Pod, p *changeover.Pod, _ *changeover.Node) {
			p.Observed.Containers[0].Labels = map[string]string{ownership.Label: "other"}
		}, changeover.Refuses, `its containers belong to another agent: label nodeagent/owner is "other"`},
		{"FlexVolume", func(pod *corev1.Pod, _ *changeover.Pod, _ *changeover.Node) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "a/b"}}}}
		}, changeover.Refuses, "spec.volumes[0].flexVolume: "},
		{"unsafe sysctl", func(pod *corev1.Pod, _ *changeover.Pod, _ *changeover.Node) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
		}, changeover.Refuses, "kernel.msgmax"},
		{"claims without a cluster", func(pod *corev1.Pod, _ *changeover.Pod, n *changeover.Node) {
			n.Cluster = false
			claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}}}
		}, changeover.Refuses, "spec.volumes[0].persistentVolumeClaim: "},
		{"device without record", func(pod *corev1.Pod, _ *changeover.Pod, n *changeover.Node) {
			setLimit(pod, gpu)
			n.Devices = device.Previous{Resources: []string{gpu}}
		}, changeover.Loses, "container main: its devices example.com/gpu have no record"},
		{"device with record", func(pod *corev1.Pod, _ *changeover.Pod, n *changeover.Node) {
			setLimit(pod, gpu)
			n.Devices = device.Previous{Resources: []string{gpu}, Claims: []device.Claim{{PodUID: string(pod.UID), Container: "main", Resource: gpu}}}
		}, changeover.Keeps, ""},
		{"resource of no plugin", func(pod *corev1.Pod, _ *changeover.Pod, _ *changeover.Node) { setLimit(pod, gpu) }, changeover.Keeps, ""},
		{"damaged checkpoint", func(pod *corev1.Pod, _ *changeover.Pod, n *changeover.Node) {
			setLimit(pod, gpu)
			n.DevicesErr = errors.New("the checksum is wrong")
		}, changeover.Loses, "container main: its devices example.com/gpu are not known: the checksum is wrong"},
		{"orphaned", func(_ *corev1.Pod, p *changeover.Pod, _ *changeover.Node) {
			p.Pod, p.Volumes = nil, []string{"volumes/kubernetes.io~csi/pv"}
		}, changeover.Stops, "its volumes need to be unmounted by hand: volumes/kubernetes.io~csi/pv"},
		{"orphaned without API server", func(_ *corev1.Pod, p *changeover.Pod, n *changeover.Node) { p.Pod, n.AllListed = nil, false }, changeover.Unknown, "its spec cannot be read"},
		{"deleted", func(pod *corev1.Pod, _ *changeover.Pod, _ *changeover.Node) {
			pod.DeletionTimestamp = new(metav1.NewTime(created()))
		}, changeover.Stops, "it is being deleted"},
		{"past its deadline", func(pod *corev1.Pod, _ *changeover.Pod, _ *changeover.Node) {
			pod.Spec.ActiveDeadlineSeconds, pod.Status.StartTime = new(int64(60)), new(metav1.NewTime(created()))
		}, changeover.Stops, "container main: "},
		{"unreadable volumes", func(_ *corev1.Pod, p *changeover.Pod, _ *changeover.Node) { p.Err = errors.New("permission denied") }, changeover.Unknown, "permission denied"},
	} {
		pod := newPod("web")
		n := newNode(changeover.Pod{Pod: pod, Observed: observe(pod)})
		c.change(pod, &n.Pods[0], &n)
		before := pod.DeepCopy()
		r := changeover.Decide(n)
		require.Len(t, r.Pods, 1, c.name)
		got := r.Pods[0]
		assert.Equal(t, c.outcome, got.Outcome, "%s: %v", c.name, got.Reasons)
		assert.Equal(t, before, pod, "%s: the pod of the source is not modified", c.name)
		if c.outcome == changeover.Keeps {
			assert.Empty(t, got.Reasons, c.name)
			assert.Equal(t, changeover.ExitKeeps, r.ExitCode(), c.name)
			continue
		}
		require.NotEmpty(t, got.Reasons, c.name)
		assert.Contains(t, strings.Join(got.Reasons, "; "), c.reason, c.name)
		want := changeover.ExitChanges
		if c.outcome == changeover.Unknown {
			want = changeover.ExitUnread
		}
		assert.Equal(t, want, r.ExitCode(), c.name)
	}
}

// setLimit gives the container of the pod one device.
func setLimit(pod *corev1.Pod, name corev1.ResourceName) {
	list := corev1.ResourceList{name: resource.MustParse("1")}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
}

// A static pod whose UID is another one for the agent is replaced.
func TestDecideReportsOtherUIDOfStaticPod(t *testing.T) {
	theirs, ours := newPod("static"), newPod("static")
	ours.UID = "computed"
	r := changeover.Decide(newNode(changeover.Pod{Observed: observe(theirs)}, changeover.Pod{Pod: ours}))
	require.Len(t, r.Pods, 2)
	assert.Equal(t, changeover.Keeps, r.Pods[0].Outcome, "it is started")
	assert.Equal(t, changeover.Stops, r.Pods[1].Outcome)
	assert.Equal(t, []string{"its UID is uid-static, but that of the pod with its name is computed: it is replaced"}, r.Pods[1].Reasons)
}

// The report is text for people, and JSON without null for programs. Control characters cannot forge a line.
func TestReportIsTextAndJSON(t *testing.T) {
	web, db := newPod("web"), newPod("db")
	n := newNode(changeover.Pod{Pod: web, Observed: observe(web)}, changeover.Pod{Pod: db, Observed: observe(db), CgroupMissing: true})
	n.Settings, n.Unread = []string{`config.yaml: memoryReservationPolicy: "TieredReservation" is not supported by this version`}, []string{"a\npod ns/x: keeps"}
	r := changeover.Decide(n)
	assert.Equal(t, `setting: config.yaml: memoryReservationPolicy: "TieredReservation" is not supported by this version
not read: "a\npod ns/x: keeps"
pod ns/db: restarts: its sandbox is replaced: the cgroup of the pod is missing; container main: the cgroup of the pod is missing
pod ns/web: keeps
2 pods, keeps 1, restarts 1
`, r.Text())
	assert.Equal(t, changeover.ExitUnread, r.ExitCode())
	n.Unread = nil
	r = changeover.Decide(n)
	assert.Equal(t, changeover.ExitChanges, r.ExitCode())
	text, err := json.Marshal(r)
	require.NoError(t, err)
	assert.JSONEq(t, `{"settings":["config.yaml: memoryReservationPolicy: \"TieredReservation\" is not supported by this version"],"node":[],"unread":[],"pods":[
		{"namespace":"ns","name":"db","uid":"uid-db","outcome":"restarts","reasons":["its sandbox is replaced: the cgroup of the pod is missing","container main: the cgroup of the pod is missing"]},
		{"namespace":"ns","name":"web","uid":"uid-web","outcome":"keeps","reasons":[]}]}`, string(text))
	empty := changeover.Decide(changeover.Node{Settings: []string{"x"}})
	assert.Equal(t, changeover.ExitChanges, empty.ExitCode(), "a setting alone")
}

// The format is a flag anywhere among those of the kubelet.
func TestCutFormat(t *testing.T) {
	for _, args := range [][]string{{"--config=a", "-o", "json"}, {"-o=json", "--config=a"}, {"--output=json", "--config=a"}, {"--output", "json", "--config=a"}} {
		format, rest, err := changeover.CutFormat(args)
		require.NoError(t, err)
		assert.Equal(t, "json", format)
		assert.Equal(t, []string{"--config=a"}, rest)
	}
	for _, args := range [][]string{{"-o"}, {"-o", "yaml"}, {"-o="}} {
		_, _, err := changeover.CutFormat(args)
		require.Error(t, err)
	}
	format, _, err := changeover.CutFormat(nil)
	require.NoError(t, err)
	assert.Equal(t, "text", format)
}
