// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// A test of a node runs in a bubble. If it fails, it prints the log of the node.
func ExampleNew() {
	_ = func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := nodetest.New(t, nodetest.Options{})
			if err := n.Add(nodetest.NewPod("web", nodetest.Resources{CPU: "1"}, "cpu=0.5")); err != nil {
				t.Fatal(err)
			}
			n.Advance(time.Minute)
			if slow := n.Log().Phases("default/web", n.Age())["Pending"]; slow > time.Second {
				t.Errorf("the pod was pending for %v", slow)
			}
		})
	}
}

// Scripts in testdata are tests.
func ExampleRunScripts() {
	_ = func(t *testing.T) { nodetest.RunScripts(t, "testdata/*.txtar") }
}

// A script is played, and its output filled in.
func ExamplePlayScript() {
	fmt.Println(nodetest.Simulate(func(ctx context.Context) error {
		actual, log := nodetest.PlayScript(ctx, "machine memory=2Gi\npod leak uses memory=ramp(0,4Gi,4m)\nafter 5m\nconditions\n")
		fmt.Print(actual)
		fmt.Println(len(log.Match("", nodetest.KindCondition, "MemoryPressure")), "entry about pressure")
		return nil
	}))
	// Output:
	// machine memory=2Gi
	// pod leak uses memory=ramp(0,4Gi,4m)
	// after 5m
	// conditions
	// > 1m55.1s MemoryPressure
	// 1 entry about pressure
	// <nil>
}

// Usage in code: a service whose CPU usage follows the day, with bursts of requests, and whose memory grows in steps.
func ExampleOptions_behave() {
	service := nodetest.Usage{
		CPU: nodetest.Sum(
			nodetest.Diurnal(1, 0.5, 24*time.Hour), nodetest.Constant(0.1),
			nodetest.Bursts(nodetest.BurstOptions{Burst: 2, Every: time.Hour, Length: time.Minute, Seed: 1}),
		),
		Memory: nodetest.Steps(nodetest.Step{Amount: 100 << 20}, nodetest.Step{At: time.Hour, Amount: 300 << 20}),
		Logs:   nodetest.Ramp(0, 1<<30, 24*time.Hour),
	}
	behave := func(pod *corev1.Pod, _ string) (nodetest.Behavior, bool) {
		return nodetest.Behavior{Usage: service}, pod.Labels["app"] == "service"
	}
	fmt.Println(nodetest.Simulate(func(ctx context.Context) error {
		n, err := nodetest.Open(ctx, nodetest.Options{Behave: behave})
		if err != nil {
			return err
		}
		defer n.Close()
		pod := nodetest.NewPod("shop", nodetest.Resources{CPU: "1", MemoryLimit: "250Mi"}, "")
		pod.Labels = map[string]string{"app": "service"}
		err = n.Add(pod)
		n.Advance(2 * time.Hour)
		for _, e := range n.Log().Match("default/shop", nodetest.KindOOM, "") {
			fmt.Println(e.At.Round(time.Minute), e.Pod, e.Container, e.Message)
		}
		return err
	}))
	// Output:
	// 1h0m0s default/shop main 250 MiB of memory, oom_score_adj 970
	// <nil>
}

// The text of an annotation is a behavior. An agent, a disk and a whole machine may fail.
func ExampleNode_Reboot() {
	b, err := nodetest.ParseBehavior("cpu=ramp(0,2,10m) exit=1@20m", 0)
	fmt.Println(b.Usage.CPU(5*time.Minute), b.Exit.After, err)
	fmt.Println(nodetest.Simulate(func(ctx context.Context) error {
		n, err := nodetest.Open(ctx, nodetest.Options{Name: "n1", Machine: machine.Spec{Disk: machine.Disk{Bytes: 20 << 30}}})
		if err != nil {
			return err
		}
		defer n.Close()
		pod := nodetest.NewPod("web", nodetest.Resources{}, "")
		pod.Annotations = map[string]string{nodetest.AnnotationUsage: "cpu=0.1 logs=1Gi"}
		if err := n.Add(pod); err != nil {
			return err
		}
		n.Advance(time.Minute)
		if err := n.Reboot(time.Minute); err != nil {
			return err
		}
		n.Advance(time.Minute)
		state, _ := n.Agent().Reconciler().Pod("web")
		fmt.Println(state.Status.Phase, state.Status.ContainerStatuses[0].RestartCount)
		n.FillDisk(machine.NodeDisk, 19<<30)
		n.Advance(time.Minute)
		node, _ := apiservertest.Get[*corev1.Node](n.API(), "", "n1")
		fmt.Println(node.Name, len(n.Log().Match("", nodetest.KindEvent, "Evicted")), len(n.Log().Match("", nodetest.KindPhase, "Failed")))
		fmt.Println(len(n.Log().Match("", nodetest.KindReady, "True")), n.Log().NotReady("default/web", n.Age()) > 30*time.Second)
		return nil
	}))
	// Output:
	// 1 20m0s <nil>
	// Running 1
	// n1 1 1
	// 2 true
	// <nil>
}
