// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// Three pods share a node for ten minutes: which is throttled, evicted or killed?
func Example() {
	n, err := nodetest.NewLoop(context.Background(), nodetest.Options{Machine: machine.Spec{CPUs: 2, Memory: 4 << 30}})
	if err != nil {
		log.Fatal(err)
	}
	err = n.Add(
		nodetest.NewPod("web", nodetest.Resources{CPU: "500m", CPULimit: "500m", Memory: "1Gi", MemoryLimit: "1Gi"}, "cpu=1 memory=256Mi"),
		nodetest.NewPod("leak", nodetest.Resources{Memory: "100Mi"}, "memory=ramp(100Mi,8Gi,10m)"),
		nodetest.NewPod("greedy", nodetest.Resources{MemoryLimit: "200Mi"}, "memory=steps(100Mi@0s,300Mi@6m)"),
	)
	if err != nil {
		log.Fatal(err)
	}
	n.Advance(10 * time.Minute)
	web, _ := n.Stats("web")
	fmt.Println("web was throttled for", time.Duration(web.CPU.ThrottledTime).Round(time.Minute))
	fmt.Println("evicted:", n.Log().Evicted())
	fmt.Println("killed:", n.Log().OOMKilled())
	// Output:
	// web was throttled for 5m0s
	// evicted: [default/leak]
	// killed: [default/greedy/main]
}

// largestFirst is an eviction ranking of a study: the pod with the largest memory is evicted first, whatever it requests.
func largestFirst(eviction.Layout) eviction.EvictionRanker {
	return eviction.OrderedBy(func(a, b *eviction.Candidate) int { return int(b.Memory>>20) - int(a.Memory>>20) })
}

// A study of evictions compares the ranking of the kubelet with another.
func Example_evictionStudy() {
	for _, study := range []struct {
		name   string
		ranker func(eviction.Layout) eviction.EvictionRanker
	}{{"kubelet", nil}, {"largest first", largestFirst}} {
		n, err := nodetest.NewLoop(context.Background(), nodetest.Options{
			Machine: machine.Spec{Memory: 8 << 30}, Adjust: func(o *agent.Options) { o.Ranker = study.ranker },
		})
		if err != nil {
			log.Fatal(err)
		}
		err = n.Add(
			nodetest.NewPod("database", nodetest.Resources{Memory: "6Gi"}, "memory=5500Mi"),
			nodetest.NewPod("batch", nodetest.Resources{}, "memory=ramp(0,4Gi,5m)"),
		)
		n.Advance(10 * time.Minute)
		fmt.Println(study.name, n.Log().Evicted(), err)
	}
	// Output:
	// kubelet [default/batch] <nil>
	// largest first [default/database] <nil>
}

// A test of a scheduler: its decision places pods on two nodes, whose evictions judge it.
func Example_scheduler() {
	schedule := func(pod int) string { return []string{"n1", "n2"}[pod%2] } // the scheduler under test
	fmt.Println(nodetest.Simulate(func(ctx context.Context) error {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		nodes := map[string]*nodetest.Node{}
		for _, name := range []string{"n1", "n2"} {
			n, err := nodetest.Open(ctx, nodetest.Options{Name: name, API: server, Machine: machine.Spec{Memory: 2 << 30}})
			if err != nil {
				return err
			}
			defer n.Close()
			nodes[name] = n
		}
		for i := range 6 {
			pod := nodetest.NewPod(fmt.Sprint("pod-", i), nodetest.Resources{Memory: "400Mi"}, fmt.Sprintf("memory=ramp(0,%dMi,2m)", 200+i%2*500+i*5))
			if err := nodes[schedule(i)].Add(pod); err != nil {
				return err
			}
		}
		time.Sleep(5 * time.Minute)
		fmt.Println("n1:", nodes["n1"].Log().Evicted(), "n2:", nodes["n2"].Log().Evicted())
		return nil
	}))
	// Output:
	// n1: [] n2: [default/pod-5]
	// <nil>
}

// A test of an autoscaler: it reads the usage of a pod each minute, and adds replicas while the CPU time per replica is above half a CPU.
func Example_autoscaler() {
	fmt.Println(nodetest.Simulate(func(ctx context.Context) error {
		n, err := nodetest.Open(ctx, nodetest.Options{Machine: machine.Spec{CPUs: 8}})
		if err != nil {
			return err
		}
		defer n.Close()
		var last uint64
		replicas := 0
		for minute := range 10 {
			if minute == 0 || time.Duration(last) > 30*time.Second {
				replicas++
				pod := nodetest.NewPod(fmt.Sprint("web-", replicas), nodetest.Resources{CPU: "1"}, fmt.Sprintf("cpu=%.2f", 1.6/float64(replicas)))
				if err := n.Add(pod); err != nil {
					return err
				}
			}
			newest := fmt.Sprint("web-", replicas)
			before, _ := n.Stats(newest)
			n.Advance(time.Minute)
			after, err := n.Stats(newest)
			if err != nil {
				return err
			}
			last = after.CPU.Usage - before.CPU.Usage
		}
		fmt.Println(replicas, "replicas")
		return nil
	}))
	// Output:
	// 4 replicas
	// <nil>
}

// A chaos test: a runtime that hangs, an agent that is killed and a network that is cut restart no container.
func Example_chaos() {
	fmt.Println(nodetest.Simulate(func(ctx context.Context) error {
		n, err := nodetest.Open(ctx, nodetest.Options{})
		if err != nil {
			return err
		}
		defer n.Close()
		if err := n.Add(nodetest.NewPod("web", nodetest.Resources{CPU: "1"}, "cpu=0.5")); err != nil {
			return err
		}
		n.Advance(time.Minute)
		remove := n.Inject(nodetest.Fault{Op: "List", Hang: true})
		n.Advance(5 * time.Minute)
		remove()
		err = errors.Join(n.CutNetwork(true), n.RestartAgent(time.Minute), n.RestartAgent(time.Second))
		n.Advance(5 * time.Minute)
		err = errors.Join(err, n.CutNetwork(false))
		n.Advance(5 * time.Minute)
		fmt.Println("exits:", len(n.Log().Match("default/web", nodetest.KindExit, "")))
		pod, _ := n.Pod("web")
		fmt.Println(pod.Status.Phase, err)
		return nil
	}))
	// Output:
	// exits: 0
	// Running <nil>
	// <nil>
}

// A demonstration for a lecture: two pods that want all of the CPU time share it as they request it, also when one has a limit.
func Example_lecture() {
	for _, limit := range []string{"", "200m"} {
		n, err := nodetest.NewLoop(context.Background(), nodetest.Options{Machine: machine.Spec{CPUs: 1}})
		if err != nil {
			log.Fatal(err)
		}
		err = n.Add(
			nodetest.NewPod("small", nodetest.Resources{CPU: "100m"}, "cpu=1"),
			nodetest.NewPod("large", nodetest.Resources{CPU: "200m", CPULimit: limit}, "cpu=1"),
		)
		n.Advance(time.Hour)
		for _, name := range []string{"small", "large"} {
			s, _ := n.Stats(name)
			fmt.Printf("%s %.0f %%  ", name, 100*time.Duration(s.CPU.Usage).Hours())
		}
		fmt.Printf("limit %q %v\n", limit, err)
	}
	// Output:
	// small 37 %  large 63 %  limit "" <nil>
	// small 80 %  large 20 %  limit "200m" <nil>
}

// The wall clock of a node is corrected by a day while a container waits for its back-off. It restarts without delay, and not a day later.
func ExampleLoop_JumpClock() {
	n, err := nodetest.NewLoop(context.Background(), nodetest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	err = n.Add(nodetest.NewPod("crash", nodetest.Resources{}, "exit=1@1m"))
	n.Advance(2*time.Minute + 5*time.Second)
	n.JumpClock(-24 * time.Hour)
	n.Advance(15 * time.Second)
	for _, e := range n.Log().Match("", nodetest.KindEvent, "Started") {
		fmt.Println(e.At.Round(5 * time.Second))
	}
	fmt.Println(err)
	// Output:
	// 0s
	// 1m0s
	// 2m10s
	// <nil>
}

// Two containers behave as those of a public trace, whose machines have 16 CPUs and 64 GiB: which of them fits on this node?
func ExampleReadTrace() {
	trace, err := nodetest.ReadTrace(strings.NewReader(`
{"start_time":"0","collection_id":"7","instance_index":"0","average_usage":{"cpus":0.05,"memory":0.01}}
{"start_time":"300000000","collection_id":"7","instance_index":"0","average_usage":{"cpus":0.08,"memory":0.02}}
{"start_time":"0","collection_id":"7","instance_index":"1","average_usage":{"cpus":0.02,"memory":0.04}}
{"start_time":"300000000","collection_id":"7","instance_index":"1","average_usage":{"cpus":0.02,"memory":0.042}}
`), nodetest.Google2019(16, 64<<30))
	if err != nil {
		log.Fatal(err)
	}
	first, _ := trace.Usage("7/0")
	n, err := nodetest.NewLoop(context.Background(), nodetest.Options{
		Machine:  machine.Spec{CPUs: 2, Memory: 4 << 30},
		Selected: []nodetest.SelectedBehavior{{Selector: "app=first", Behavior: nodetest.Behavior{Usage: first}}},
		Traces:   map[string]*nodetest.Trace{"cell-a": trace},
	})
	if err != nil {
		log.Fatal(err)
	}
	web := nodetest.NewPod("web", nodetest.Resources{CPU: "1", Memory: "2Gi"}, "")
	web.Labels = map[string]string{"app": "first"}
	fmt.Println(trace.Keys(), n.Add(web, nodetest.NewPod("batch", nodetest.Resources{}, "trace=cell-a/7/1")))
	n.Advance(10 * time.Minute)
	fmt.Println(n.Log().Evicted())
	// Output:
	// [7/0 7/1] <nil>
	// [default/batch]
}

// The keys of the public traces of Google (2011) and Alibaba (2018), whose files have no header.
func ExampleTraceFormat() {
	for _, t := range []struct {
		format nodetest.TraceFormat
		text   string
	}{
		{nodetest.Google2011(16, 64<<30), "600000000,900000000,3418309,0,4155527081,0.05,0.02,0.07,0.01,0.03,0.06,0,0,0.1,0,2.9,0.01,1,0,0.04"},
		{nodetest.Alibaba2018(16, 64<<30), "c_1,m_2556,386640,5,2,1.2,0.1,3,0.1,0.2,4"},
	} {
		trace, err := nodetest.ReadTrace(strings.NewReader(t.text), t.format)
		if err != nil {
			log.Fatal(err)
		}
		u, _ := trace.Usage(trace.Keys()[0])
		fmt.Printf("%s: %.1f CPUs, %.2f GiB\n", trace.Keys(), u.CPU(0), u.Memory(0)/(1<<30))
	}
	// Output:
	// [3418309/0]: 0.8 CPUs, 1.28 GiB
	// [c_1]: 0.8 CPUs, 1.28 GiB
}
