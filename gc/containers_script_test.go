// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/script"
)

// TestContainerScripts runs testdata/containers/*.txt: the objects of a runtime, and the planned removals. Commands:
//
//	container ID POD/NAME at=SECONDS [running|created|unknown] [sandbox=ID] [foreign]
//	sandbox ID POD at=SECONDS [ready] [foreign]
//	pod UID STATE          active, owned, terminated or removed; active if not set
//	now SECONDS            the time; 3600 if not set
//	notready | unused | mine
//	plan minage=DURATION per=N max=N
//	sandboxes
func TestContainerScripts(t *testing.T) {
	script.Run(t, "testdata/containers/*.txt", func(t *testing.T, text string) string {
		n := &containerNode{t: t, pods: map[string]gc.PodState{}}
		n.state = gc.ContainerState{Now: n.parseTime("3600"), Pod: func(uid string) gc.PodState { return n.pods[uid] }}
		return script.Lines(text, ">", n.runCommand)
	})
}

type containerNode struct {
	t     *testing.T
	state gc.ContainerState
	pods  map[string]gc.PodState
}

func (n *containerNode) parseTime(seconds string) time.Time {
	s, err := strconv.ParseFloat(seconds, 64)
	require.NoError(n.t, err)
	return time.Unix(1_000_000, 0).Add(time.Duration(s * float64(time.Second)))
}

func (n *containerNode) runCommand(out *strings.Builder, words []string) {
	args := words[1:]
	switch words[0] {
	case "container":
		pod, name, _ := strings.Cut(args[1], "/")
		c := cri.Container{ID: args[0], PodUID: pod, Name: name, State: cri.ContainerExited, SandboxID: "sandbox-of-" + pod}
		states := map[string]cri.ContainerState{"running": cri.ContainerRunning, "created": cri.ContainerCreated, "unknown": cri.ContainerUnknown}
		for _, arg := range args[2:] {
			switch key, value, _ := strings.Cut(arg, "="); key {
			case "at":
				c.CreatedAt = n.parseTime(value)
			case "sandbox":
				c.SandboxID = value
			case "foreign":
				c.Labels = map[string]string{"foreign": ""}
			default:
				state, ok := states[key]
				require.True(n.t, ok, arg)
				c.State = state
			}
		}
		n.state.Snapshot.Containers = append(n.state.Snapshot.Containers, c)
	case "sandbox":
		s := cri.Sandbox{ID: args[0], Pod: cri.PodIdentity{UID: args[1]}, State: cri.SandboxNotReady}
		for _, arg := range args[2:] {
			switch key, value, _ := strings.Cut(arg, "="); key {
			case "at":
				s.CreatedAt = n.parseTime(value)
			case "ready":
				s.State = cri.SandboxReady
			case "foreign":
				s.Labels = map[string]string{"foreign": ""}
			default:
				n.t.Fatalf("unknown %q", arg)
			}
		}
		n.state.Snapshot.Sandboxes = append(n.state.Snapshot.Sandboxes, s)
	case "pod":
		for s := gc.PodActive; s <= gc.PodRemoved; s++ {
			if s.String() == args[1] {
				n.pods[args[0]] = s
			}
		}
	case "now":
		n.state.Now = n.parseTime(args[0])
	case "notready":
		n.state.NotReady = true
	case "unused":
		n.state.IncludeTerminated = true
	case "mine":
		n.state.MayRemove = func(labels map[string]string) bool { _, foreign := labels["foreign"]; return !foreign }
	case "plan":
		printRemovals(out, gc.PlanContainers(n.parsePolicy(args), n.state))
	case "sandboxes":
		printRemovals(out, gc.PlanSandboxes(n.state))
	default:
		n.t.Fatalf("unknown line %q", words)
	}
}

func (n *containerNode) parsePolicy(args []string) gc.ContainerPolicy {
	p := gc.DefaultContainerPolicy()
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		var err error
		switch key {
		case "minage":
			p.MinAge, err = time.ParseDuration(value)
		case "per":
			p.MaxPerPodContainer, err = strconv.Atoi(value)
		case "max":
			p.MaxContainers, err = strconv.Atoi(value)
		default:
			n.t.Fatalf("unknown policy %q", arg)
		}
		require.NoError(n.t, err)
	}
	return p
}

func printRemovals(out *strings.Builder, removals []gc.Removal) {
	if len(removals) == 0 {
		fmt.Fprintln(out, "> nothing")
	}
	for _, r := range removals {
		stop := ""
		if r.Stop {
			stop = "stop, then "
		}
		fmt.Fprintf(out, "> %sremove %s: %s\n", stop, r.ID, r.Reason)
	}
}
