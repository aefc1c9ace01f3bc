// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/kubelet"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

func TestPlan(t *testing.T) { run(t, plans) }
func FuzzPlan(f *testing.F) { fuzz(f, plans) }

// decision has the actions on a pod.
type decision struct {
	Kills         map[string]string // by ID of a running container: its grace period, and whether a hook runs
	StopSandboxes []string
	Sandbox       string    // attempt of the created sandbox
	Starts        []started // in order
}

// started is a container that is started or restarted.
type started struct {
	Name    string
	Attempt uint32
	Target  string // ID of the container whose processes it can access
}

const afterHook = " after its hook"

func (d *decision) kill(id string, grace time.Duration, hook bool) {
	if d.Kills == nil {
		d.Kills = map[string]string{}
	}
	d.Kills[id] = grace.String()
	if hook {
		d.Kills[id] += afterHook
	}
}

var plans = conformance.Comparison[scene, decision]{
	Make:       newScene,
	Kubelet:    kubeletPlans,
	Ours:       nodeagentPlans,
	Exceptions: planExceptions,
}

func nodeagentPlans(s scene) decision {
	d := decision{Kills: map[string]string{}}
	a := plan.Plan(plan.State{Pod: s.Pod, Observed: s.Observed, Now: sceneTime, Probes: s.probeResults})
	for _, k := range a.Kill {
		if _, twice := d.Kills[k.ID]; twice {
			panic("container is killed twice: " + k.ID)
		}
		d.kill(k.ID, k.Grace, k.PreStop != nil)
	}
	d.StopSandboxes = slices.Sorted(slices.Values(a.StopSandboxes))
	if a.Sandbox != nil {
		d.Sandbox = strconv.Itoa(int(a.Sandbox.Attempt))
	}
	for _, x := range a.Start {
		d.Starts = append(d.Starts, started{x.Container.Name, x.Attempt, x.TargetID})
	}
	return d
}

// kubeletPlans syncs the pod with the kubelet's manager until a restart of all containers is complete, which takes several
// syncs.
func kubeletPlans(s scene) (d decision) {
	ctx := context.Background()
	r := newRuntimeOf(s)
	m := r.manager(ctx, s)
	defer func() { slices.Sort(d.StopSandboxes) }()
	if s.Pod.DeletionTimestamp != nil {
		seconds := kubelet.ConformanceGrace(s.Pod)
		_ = m.KillPod(ctx, s.Pod, kubecontainer.ConvertPodStatusToRunningPod("stand-in", podStatus(ctx, m, s)), &seconds)
		return r.record
	}
	var api corev1.PodStatus
	for range 4 {
		seen := podStatus(ctx, m, s)
		all := status.GenerateAllContainersRestartingCondition(s.Pod, seen, &api, corev1.PodRunning)
		api.Conditions = []corev1.PodCondition{all}
		restart := all.Status == corev1.ConditionTrue
		m.SyncPod(ctx, s.Pod, seen, nil, flowcontrol.NewBackOff(10*time.Second, 5*time.Minute), restart)
		if !restart {
			break
		}
	}
	if r.record.Sandbox != "" { // the kubelet starts them in a later sync, if one sync is sufficient
		r.record.Starts = slices.DeleteFunc(r.record.Starts, func(x started) bool { return s.ephemeral(x.Name) })
	}
	return r.record
}

// podStatus returns the status that the kubelet reads from its runtime.
func podStatus(ctx context.Context, m kuberuntime.KubeGenericRuntime, s scene) *kubecontainer.PodStatus {
	pods, err := m.GetPods(ctx, true)
	if err != nil {
		panic(err)
	}
	pod := &kubecontainer.Pod{ID: s.Pod.UID, Name: s.Pod.Name, Namespace: s.Pod.Namespace}
	if len(pods) > 0 {
		pod = pods[0]
	}
	st, err := m.GetPodStatus(ctx, pod)
	if err != nil {
		panic(err)
	}
	return st
}
