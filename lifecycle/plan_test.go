// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

var update = flag.Bool("update", false, "rewrite the expectations of the scenarios")

// TestPlanScenarios runs testdata/plan/*.txt. A scenario describes a pod and what the runtime has of it, line by
// line, and asks for plans; what is indented below a "plan" line is the plan. Lines:
//
//	pod KEY=VALUE...                       restart=Always grace=30 hostNetwork deleted[=SECONDS] final
//	spec NAME KEY=VALUE...                 image=I restart=Never rule=In:42,43:Restart
//	sandbox ID KEY=VALUE...                attempt=N notready ip=A ip=none network=node asked=pod
//	container ID KEY=VALUE...              name=N sandbox=ID attempt=N running created unknown exited=CODE at=5s image=I loop=10s@0s
//	gone ID                                the runtime has removed it
//	plan TIME
//	teardown GRACE
func TestPlanScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/plan/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			require.NoError(t, err)
			got := play(t, string(script))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(script), got)
		})
	}
}

// scene is the state that the lines of a scenario build up.
type scene struct {
	t    *testing.T
	pod  *corev1.Pod
	obs  cri.Pod
	fin  bool
	bare bool // without a cgroup
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// play runs a scenario and returns it with the plans as they come out.
func play(t *testing.T, script string) string {
	s := &scene{t: t, pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: types.UID("u1")}}}
	var out bytes.Buffer
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue // an expectation
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
			s.setSpec(f[1], f[2:])
		case "sandbox":
			s.setSandbox(f[1], f[2:])
		case "container":
			s.setContainer(f[1], f[2:])
		case "gone":
			s.remove(f[1])
		case "plan":
			a := lifecycle.Plan(lifecycle.State{Pod: s.pod, Observed: s.obs, Now: epoch.Add(s.duration(f[1])), Final: s.fin, NoCgroup: s.bare})
			describe(&out, a)
		case "teardown":
			describe(&out, lifecycle.Teardown(s.obs, s.duration(f[1])))
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return out.String()
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
		case "cgroup":
			s.bare = v == "missing"
		default:
			s.t.Fatalf("pod: unknown %q", arg)
		}
	}
}

func (s *scene) setSpec(name string, args []string) {
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
			part := strings.Split(v, ":")
			rule := corev1.ContainerRestartRule{
				Action:    corev1.ContainerRestartRuleAction(part[2]),
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOperator(part[0])},
			}
			for code := range strings.SplitSeq(part[1], ",") {
				rule.ExitCodes.Values = append(rule.ExitCodes.Values, int32(s.number(code)))
			}
			c.RestartPolicyRules = append(c.RestartPolicyRules, rule)
		default:
			s.t.Fatalf("spec: unknown %q", arg)
		}
	}
	for i := range s.pod.Spec.Containers {
		if s.pod.Spec.Containers[i].Name == name {
			s.pod.Spec.Containers[i] = c
			return
		}
	}
	s.pod.Spec.Containers = append(s.pod.Spec.Containers, c)
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
			sb.Annotations = map[string]string{lifecycle.AnnotationNetwork: v}
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
		default:
			s.t.Fatalf("container: unknown %q", arg)
		}
	}
	c.Annotations[podspec.AnnotationHash] = podspec.Hash(&corev1.Container{Name: c.Name, Image: image})
	if delay, begun, ok := strings.Cut(loop, "@"); ok {
		key := lifecycle.CrashLoopKey(s.pod, s.container(c.Name))
		c.Annotations[lifecycle.AnnotationCrashLoop] = fmt.Sprintf("%s %s %d", key, delay, epoch.Add(s.duration(begun)).UnixNano())
	}
	s.remove(id)
	s.obs.Containers = append(s.obs.Containers, c)
}

func (s *scene) container(name string) *corev1.Container {
	for i := range s.pod.Spec.Containers {
		if s.pod.Spec.Containers[i].Name == name {
			return &s.pod.Spec.Containers[i]
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

// describe prints a plan, an action a line, in the order in which it is carried out.
func describe(out *bytes.Buffer, a lifecycle.Actions) {
	line := func(format string, args ...any) { fmt.Fprintf(out, "  "+format+"\n", args...) }
	for _, k := range a.Kill {
		line("kill %s grace=%s: %s", k.ID, k.Grace, k.Reason)
	}
	for _, id := range a.StopSandboxes {
		line("stop sandbox %s", id)
	}
	for _, id := range a.Remove {
		line("remove container %s", id)
	}
	if a.Sandbox != nil {
		line("create sandbox attempt=%d: %s", a.Sandbox.Attempt, a.SandboxChanged)
	}
	for _, x := range a.Start {
		what := fmt.Sprintf("start %s attempt=%d", x.Container.Name, x.Attempt)
		if x.CreatedID != "" {
			what += " created=" + x.CreatedID
		}
		if f := strings.Fields(x.CrashLoop); len(f) == 3 {
			what += " loop=" + f[1]
		}
		line("%s", what)
	}
	for _, x := range a.Waiting {
		line("wait %s until=%s: %s", x.Name, x.Until.Sub(epoch), x.Message)
	}
	for _, id := range a.RemoveSandbox {
		line("remove sandbox %s", id)
	}
	if a.Done {
		line("done")
	}
	if a.Idle() && !a.Done && len(a.Waiting) == 0 {
		line("nothing")
	}
}
