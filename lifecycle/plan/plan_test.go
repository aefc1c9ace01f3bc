// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/script"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/probe"
)

// TestPlanScenarios runs testdata/plan/*.txt. A scenario describes a pod and its containers in the runtime, line by line, and
// requests plans. The indented lines below a "plan" line are the expected plan. Lines:
//
//	pod KEY=VALUE...                       restart=Always grace=30 hostNetwork deleted[=SECONDS] final trimmed evicted[=GRACE] rejected
//	spec NAME KEY=VALUE...                 image=I restart=Never rule=In:42,43:Restart startup liveness=GRACE prestop
//	init NAME KEY=VALUE...                 like spec, for an init container; restart=Always makes it a sidecar
//	ephemeral NAME KEY=VALUE...            like spec, for an ephemeral container; target=NAME
//	probe KIND ID OUTCOME                  startup or liveness, of a container's ID: success or failure
//	sandbox ID KEY=VALUE...                attempt=N notready ip=A ip=none network=node asked=pod
//	container ID KEY=VALUE...              name=N sandbox=ID attempt=N running created unknown exited=CODE at=5s image=I loop=10s@0s round=N reason=R
//	gone ID                                the runtime has removed it
//	plan TIME
//	replaced TIME                          the result of ReplacedContainers is indented below
//	teardown GRACE
func TestPlanScenarios(t *testing.T) { script.Run(t, "testdata/plan/*.txt", play) }

// scene is the state that the lines of a scenario describe.
type scene struct {
	t    *testing.T
	pod  *corev1.Pod
	obs  cri.Pod
	fin  bool
	trim bool
	bare bool // the pod has no cgroup

	evicted  *podstatus.Eviction
	rejected *podstatus.Rejection

	probes map[probe.Key]probe.Value
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// play runs a scenario and returns it with the actual plans.
func play(t *testing.T, script string) string {
	s := &scene{
		t: t, pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: types.UID("u1")}},
		probes: map[probe.Key]probe.Value{},
	}
	var out bytes.Buffer
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue // an expected line
		}
		fmt.Fprintln(&out, line)
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		switch f[0] {
		case "pod":
			s.setPod(f[1:])
		case "spec":
			setSpec(&s.pod.Spec.Containers, s.newSpec(f[1], f[2:]))
		case "init":
			setSpec(&s.pod.Spec.InitContainers, s.newSpec(f[1], f[2:]))
		case "ephemeral":
			s.setEphemeral(f[1], f[2:])
		case "probe":
			s.setProbe(f[1], f[2], f[3])
		case "sandbox":
			s.setSandbox(f[1], f[2:])
		case "container":
			s.setContainer(f[1], f[2:])
		case "gone":
			s.remove(f[1])
		case "plan":
			describe(&out, s.plan(f[1]))
		case "replaced":
			actions := s.plan(f[1])
			for _, c := range actions.ReplacedContainers(s.obs) {
				fmt.Fprintf(&out, "  %s\n", c.ID)
			}
		case "teardown":
			describe(&out, plan.Teardown(plan.State{Observed: s.obs}, s.duration(f[1])))
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return out.String()
}

// plan returns the plan for the pod at a time.
func (s *scene) plan(at string) plan.Actions {
	return plan.Plan(plan.State{
		Pod: s.pod, Observed: s.obs, Now: epoch.Add(s.duration(at)), Previous: s.previous(), CgroupMissing: s.bare,
		Eviction: s.evicted, Rejection: s.rejected, RemoveTerminated: s.trim,
		Probes: func(k probe.Key) (probe.Value, bool) { v, ok := s.probes[k]; return v, ok },
	})
}

// previous returns a status with a terminal phase, if the scenario sets one; else nil.
func (s *scene) previous() *corev1.PodStatus {
	if !s.fin {
		return nil
	}
	return &corev1.PodStatus{Phase: corev1.PodFailed}
}

func (s *scene) setPod(args []string) {
	for _, arg := range args {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "restart":
			s.pod.Spec.RestartPolicy = corev1.RestartPolicy(v)
		case "grace":
			n := s.number(v)
			s.pod.Spec.TerminationGracePeriodSeconds = &n
		case "hostNetwork":
			s.pod.Spec.HostNetwork = true
		case "deleted":
			s.pod.DeletionTimestamp = &metav1.Time{Time: epoch}
			if v != "" {
				n := s.number(v)
				s.pod.DeletionGracePeriodSeconds = &n
			}
		case "final":
			s.fin = true
		case "trimmed":
			s.trim = true
		case "evicted":
			s.evicted = &podstatus.Eviction{Reason: "Evicted"}
			if v != "" {
				s.evicted.Grace = s.duration(v)
			}
		case "rejected":
			s.rejected = &podstatus.Rejection{Reason: "OutOfpods"}
		case "cgroup":
			s.bare = v == "missing"
		default:
			s.t.Fatalf("pod: unknown %q", arg)
		}
	}
}

// newSpec returns a container for the spec of the pod.
func (s *scene) newSpec(name string, args []string) corev1.Container {
	c := corev1.Container{Name: name, Image: "busybox"}
	for _, arg := range args {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "image":
			c.Image = v
		case "restart":
			p := corev1.ContainerRestartPolicy(v)
			c.RestartPolicy = &p
		case "rule":
			c.RestartPolicyRules = append(c.RestartPolicyRules, s.newRule(v))
		case "startup":
			c.StartupProbe = &corev1.Probe{}
		case "liveness":
			c.LivenessProbe = &corev1.Probe{}
			if v != "" {
				n := s.number(v)
				c.LivenessProbe.TerminationGracePeriodSeconds = &n
			}
		case "prestop":
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"bye", name}}}}
		default:
			s.t.Fatalf("spec: unknown %q", arg)
		}
	}
	return c
}

func (s *scene) newRule(v string) corev1.ContainerRestartRule {
	part := strings.Split(v, ":")
	rule := corev1.ContainerRestartRule{
		Action:    corev1.ContainerRestartRuleAction(part[2]),
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOperator(part[0])},
	}
	for code := range strings.SplitSeq(part[1], ",") {
		rule.ExitCodes.Values = append(rule.ExitCodes.Values, int32(s.number(code)))
	}
	return rule
}

// setSpec replaces the container of this name in the list, or appends c.
func setSpec(list *[]corev1.Container, c corev1.Container) {
	if i := slices.IndexFunc(*list, func(x corev1.Container) bool { return x.Name == c.Name }); i >= 0 {
		(*list)[i] = c
		return
	}
	*list = append(*list, c)
}

func (s *scene) setEphemeral(name string, args []string) {
	e := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "busybox"}}
	for _, arg := range args {
		target, ok := strings.CutPrefix(arg, "target=")
		require.True(s.t, ok, "ephemeral: unknown %q", arg)
		e.TargetContainerName = target
	}
	s.pod.Spec.EphemeralContainers = append(s.pod.Spec.EphemeralContainers, e)
}

func (s *scene) setProbe(kind, id, outcome string) {
	i := slices.IndexFunc(s.obs.Containers, func(c cri.Container) bool { return c.ID == id })
	require.GreaterOrEqual(s.t, i, 0, "no container %q", id)
	key := probe.Key{PodUID: "u1", Container: s.obs.Containers[i].Name}
	key.Kind = map[string]probe.Kind{"startup": probe.Startup, "liveness": probe.Liveness}[kind]
	s.probes[key] = probe.Value{
		ContainerID: id, Outcome: map[string]probe.Outcome{"success": probe.Success, "failure": probe.Failure}[outcome],
	}
}

func (s *scene) setSandbox(id string, args []string) {
	sb := cri.Sandbox{ID: id, Pod: cri.PodIdentity{UID: "u1", Name: "p", Namespace: "default"}, IPs: []string{"10.0.0.1"}}
	for _, arg := range args {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "attempt":
			sb.Attempt = uint32(s.number(v))
		case "notready":
			sb.State = cri.SandboxNotReady
		case "ip":
			if sb.IPs = []string{v}; v == "none" {
				sb.IPs = nil
			}
		case "network":
			require.Equal(s.t, "node", v)
			sb.Namespaces.Network = cri.NamespaceNode
		case "asked":
			sb.Annotations = map[string]string{podview.AnnotationNetwork: v}
		default:
			s.t.Fatalf("sandbox: unknown %q", arg)
		}
	}
	s.remove(id)
	s.obs.Sandboxes = append(s.obs.Sandboxes, sb)
}

func (s *scene) setContainer(id string, args []string) {
	c := cri.Container{ID: id, PodUID: "u1", SandboxID: "s0", Annotations: map[string]string{}}
	image, loop := "busybox", ""
	for _, arg := range args {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "name":
			c.Name = v
		case "sandbox":
			c.SandboxID = v
		case "attempt":
			c.Attempt = uint32(s.number(v))
		case "running":
			c.State = cri.ContainerRunning
		case "created":
			c.State = cri.ContainerCreated
			if v != "" {
				c.CreatedAt = epoch.Add(s.duration(v))
			}
		case "began":
			c.StartedAt = epoch.Add(s.duration(v))
		case "unknown":
			c.State = cri.ContainerUnknown
		case "exited":
			c.State, c.ExitCode = cri.ContainerExited, int32(s.number(v))
		case "at":
			c.FinishedAt = epoch.Add(s.duration(v))
		case "image":
			image = v
		case "loop":
			loop = v
		case "round":
			c.Annotations[podview.AnnotationGeneration] = v
		case "reason":
			c.Reason = v
		case "prestop":
			c.Annotations[podspec.AnnotationPreStopHandler] = `{"exec":{"command":["bye"]}}`
		default:
			s.t.Fatalf("container: unknown %q", arg)
		}
	}
	c.Annotations[podspec.AnnotationHash] = podspec.Hash(&corev1.Container{Name: c.Name, Image: image})
	if delay, begun, ok := strings.Cut(loop, "@"); ok {
		key := plan.CrashLoopKey(s.pod, s.container(c.Name))
		c.Annotations[plan.AnnotationCrashLoop] = fmt.Sprintf("%s %s %d", key, delay, epoch.Add(s.duration(begun)).UnixNano())
	}
	s.remove(id)
	s.obs.Containers = append(s.obs.Containers, c)
}

func (s *scene) container(name string) *corev1.Container {
	for _, list := range [][]corev1.Container{s.pod.Spec.Containers, s.pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	s.t.Fatalf("no container %q in the spec", name)
	return nil
}

func (s *scene) remove(id string) {
	for i := range s.obs.Sandboxes {
		if s.obs.Sandboxes[i].ID == id {
			s.obs.Sandboxes = append(s.obs.Sandboxes[:i:i], s.obs.Sandboxes[i+1:]...)
			return
		}
	}
	for i := range s.obs.Containers {
		if s.obs.Containers[i].ID == id {
			s.obs.Containers = append(s.obs.Containers[:i:i], s.obs.Containers[i+1:]...)
			return
		}
	}
}

func (s *scene) number(v string) int64 {
	n, err := strconv.ParseInt(v, 10, 64)
	require.NoError(s.t, err)
	return n
}

func (s *scene) duration(v string) time.Duration {
	d, err := time.ParseDuration(v)
	require.NoError(s.t, err)
	return d
}

// describe prints a plan with one action per line, in the order of execution.
func describe(out *bytes.Buffer, a plan.Actions) {
	line := func(format string, args ...any) { fmt.Fprintf(out, "  "+format+"\n", args...) }
	for _, k := range a.Kill {
		what := fmt.Sprintf("kill %s grace=%s", k.ID, k.Grace)
		if k.PreStop != nil {
			what += " hook=" + strings.Join(k.PreStop.Exec.Command, ",")
		}
		if len(k.WaitFor) > 0 {
			what += " after=" + strings.Join(k.WaitFor, ",")
		}
		line("%s: %s", what, k.Reason)
	}
	for _, id := range a.StopSandboxes {
		line("stop sandbox %s", id)
	}
	if a.RemoveLogs {
		line("forget")
	}
	for _, id := range a.RemoveContainers {
		line("remove container %s", id)
	}
	if a.Sandbox != nil {
		line("create sandbox attempt=%d: %s", a.Sandbox.Attempt, a.SandboxChangeReason)
	}
	for _, x := range a.Start {
		what := fmt.Sprintf("start %s attempt=%d", x.Container.Name, x.Attempt)
		if x.CreatedID != "" {
			what += " created=" + x.CreatedID
		}
		if f := strings.Fields(x.CrashLoop); len(f) == 3 {
			what += " loop=" + f[1]
		}
		if x.Generation > 0 {
			what += fmt.Sprint(" round=", x.Generation)
		}
		if x.TargetID != "" {
			what += " target=" + x.TargetID
		}
		line("%s", what)
	}
	for _, x := range a.BackOff {
		line("wait %s until=%s: %s", x.Name, x.Until.Sub(epoch), x.Message)
	}
	for _, id := range a.RemoveSandboxes {
		line("remove sandbox %s", id)
	}
	if a.PodTerminal {
		line("done")
	}
	if a.IsIdle() && !a.PodTerminal && len(a.BackOff) == 0 {
		line("nothing")
	}
}
