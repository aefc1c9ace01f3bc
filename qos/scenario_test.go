// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/qos"
)

// TestScenarios runs testdata/*.txt. A scenario is a pod, described line by line, with queries and their results. Amounts are
// request/limit, either of which may be missing:
//
//	node memory=4000000000 swap=1Gi                    for the pods that follow
//	pod a title
//	  container NAME cpu=100m/200m memory=/1Gi         also init, sidecar and ephemeral
//	  restartable NAME                                 restartPolicy Always for any container
//	  resources cpu=1/2                                pod-level resources
//	  overhead cpu=100m
//	  priority 2000000000 system-node-critical
//	  annotation kubernetes.io/config.source=file
//	  status class Guaranteed
//	  status allocated NAME cpu=1                      "pod" as NAME is the pod itself
//	  status actual NAME cpu=1/2
//	  status resize Infeasible
//	  QUERY ARGUMENTS -> RESULT                        see queries
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		s := &scenario{}
		for number, line := range strings.Split(string(text), "\n") {
			line, _, _ = strings.Cut(line, "#")
			if fields := strings.Fields(line); len(fields) > 0 {
				s.line(t, fmt.Sprintf("%s:%d", file, number+1), strings.TrimSpace(line), fields)
			}
		}
	}
}

type scenario struct {
	node  qos.Node
	title string
	pod   *corev1.Pod
}

func (s *scenario) line(t *testing.T, where, line string, f []string) {
	t.Helper()
	if question, want, ok := strings.Cut(line, "->"); ok {
		args := strings.Fields(question)
		answer, known := queries[args[0]]
		require.True(t, known, "%s: unknown query %q", where, args[0])
		assert.Equal(t, strings.TrimSpace(want), answer(s, args[1:]), "%s: %s: %s", where, s.title, question)
		return
	}
	switch f[0] {
	case "node":
		s.node = node(t, f[1:])
	case "pod":
		s.title, s.pod = line, &corev1.Pod{}
		s.pod.Name = "p"
	case "container":
		s.pod.Spec.Containers = append(s.pod.Spec.Containers, container(f[1:]))
	case "init":
		s.pod.Spec.InitContainers = append(s.pod.Spec.InitContainers, container(f[1:]))
	case "sidecar":
		s.pod.Spec.InitContainers = append(s.pod.Spec.InitContainers, container(f[1:]))
		s.restartable(f[1])
	case "ephemeral":
		c := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(container(f[1:]))}
		s.pod.Spec.EphemeralContainers = append(s.pod.Spec.EphemeralContainers, c)
	case "restartable":
		s.restartable(f[1])
	case "resources":
		s.pod.Spec.Resources = new(amounts(f[1:]))
	case "overhead":
		s.pod.Spec.Overhead = amounts(f[1:]).Requests
	case "priority":
		p, err := strconv.ParseInt(f[1], 10, 32)
		require.NoError(t, err, where)
		s.pod.Spec.Priority = new(int32(p))
		s.pod.Spec.PriorityClassName = strings.Join(f[2:], "")
	case "annotation":
		key, value, _ := strings.Cut(f[1], "=")
		s.pod.Annotations = map[string]string{key: value}
	case "status":
		s.status(f[1:])
	default:
		require.Fail(t, "unknown line", "%s: %s", where, line)
	}
}

func (s *scenario) status(f []string) {
	status := &s.pod.Status
	switch f[0] {
	case "class":
		status.QOSClass = corev1.PodQOSClass(f[1])
	case "resize":
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Reason: f[1]})
	case "allocated":
		if f[1] == "pod" {
			status.AllocatedResources = amounts(f[2:]).Requests
		} else {
			s.containerStatus(f[1]).AllocatedResources = amounts(f[2:]).Requests
		}
	case "actual":
		if f[1] == "pod" {
			status.Resources = new(amounts(f[2:]))
		} else {
			s.containerStatus(f[1]).Resources = new(amounts(f[2:]))
		}
	}
}

func (s *scenario) containerStatus(name string) *corev1.ContainerStatus {
	all := &s.pod.Status.ContainerStatuses
	if slices.ContainsFunc(s.pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }) {
		all = &s.pod.Status.InitContainerStatuses
	}
	for i := range *all {
		if (*all)[i].Name == name {
			return &(*all)[i]
		}
	}
	*all = append(*all, corev1.ContainerStatus{Name: name})
	return &(*all)[len(*all)-1]
}

func (s *scenario) restartable(name string) {
	s.container(name).RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
}

func (s *scenario) container(name string) *corev1.Container {
	for _, all := range [][]corev1.Container{s.pod.Spec.Containers, s.pod.Spec.InitContainers} {
		for i := range all {
			if all[i].Name == name {
				return &all[i]
			}
		}
	}
	for i := range s.pod.Spec.EphemeralContainers {
		if c := &s.pod.Spec.EphemeralContainers[i]; c.Name == name {
			return (*corev1.Container)(&c.EphemeralContainerCommon)
		}
	}
	return &corev1.Container{Name: name}
}

// queries are the functions that a scenario can call.
var queries = map[string]func(*scenario, []string) string{
	"class":        func(s *scenario, _ []string) string { return string(qos.Class(s.pod)) },
	"status-class": func(s *scenario, _ []string) string { return string(qos.StatusClass(s.pod)) },
	"marks": func(s *scenario, _ []string) string {
		var marks []string
		for mark, is := range map[string]func(*corev1.Pod) bool{
			"static": qos.IsStatic, "mirror": qos.IsMirror, "critical": qos.IsCritical, "node-critical": qos.IsNodeCritical,
		} {
			if is(s.pod) {
				marks = append(marks, mark)
			}
		}
		slices.Sort(marks)
		return cmp.Or(strings.Join(marks, " "), "none")
	},
	"oom": func(s *scenario, args []string) string {
		adj, err := qos.OOMScoreAdj(s.pod, s.container(args[0]), s.node.MemoryCapacity)
		return orError(strconv.Itoa(adj), err)
	},
	"requests": func(s *scenario, args []string) string { return listed(qos.Requests(s.pod, options(args))) },
	"limits":   func(s *scenario, args []string) string { return listed(qos.Limits(s.pod, options(args))) },
	"request": func(s *scenario, args []string) string {
		q := qos.Request(s.pod, corev1.ResourceName(args[0]))
		return q.String()
	},
	"milli": func(s *scenario, _ []string) string {
		limit, all := qos.CPULimit(s.pod)
		return fmt.Sprintf("%d/%d %s", qos.CPURequest(s.pod), limit, allOrSome(all))
	},
	"bytes": func(s *scenario, _ []string) string {
		limit, all := qos.MemoryLimit(s.pod)
		return fmt.Sprintf("%d/%d %s", qos.MemoryRequest(s.pod), limit, allOrSome(all))
	},
	"swap": func(s *scenario, args []string) string {
		limit, err := qos.SwapLimit(s.pod, s.container(args[0]), s.node)
		return orError(strconv.FormatInt(limit, 10), err)
	},
	"unified": func(s *scenario, args []string) string {
		r, err := qos.ContainerResources(s.pod, s.container(args[0]), s.node)
		var files []string
		for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
			files = append(files, strings.TrimPrefix(file, "memory.")+"="+r.Unified[file])
		}
		return orError(cmp.Or(strings.Join(files, " "), "none"), err)
	},
	"pod-memory": func(s *scenario, _ []string) string {
		r := qos.PodResources(s.pod, s.node)
		var files []string
		for _, f := range []struct {
			name  string
			value *int64
		}{{"min", r.MemoryMin}, {"low", r.MemoryLow}, {"high", r.MemoryHigh}} {
			if f.value != nil {
				files = append(files, fmt.Sprintf("%s=%d", f.name, *f.value))
			}
		}
		return cmp.Or(strings.Join(files, " "), "none")
	},
}

func orError(answer string, err error) string {
	if err != nil {
		return err.Error()
	}
	return answer
}

func allOrSome(all bool) string {
	if all {
		return "all"
	}
	return "some"
}

func listed(list corev1.ResourceList) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		all = append(all, string(name)+"="+q.String())
	}
	return cmp.Or(strings.Join(all, " "), "none")
}

// options parses the arguments of a query.
func options(args []string) (o qos.Options) {
	for _, arg := range args {
		switch arg {
		case "without-overhead":
			o.ExcludeOverhead = true
		case "of-containers":
			o.IgnorePodLevel = true
		case "with-status":
			o.UseStatus = true
		default:
			panic("unexpected argument " + arg)
		}
	}
	return o
}

func container(f []string) corev1.Container {
	return corev1.Container{Name: f[0], Resources: amounts(f[1:])}
}

// amounts parses name=request/limit.
func amounts(f []string) (r corev1.ResourceRequirements) {
	for _, pair := range f {
		name, text, _ := strings.Cut(pair, "=")
		request, limit, _ := strings.Cut(text, "/")
		if request != "" {
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[corev1.ResourceName(name)] = resource.MustParse(request)
		}
		if limit != "" {
			if r.Limits == nil {
				r.Limits = corev1.ResourceList{}
			}
			r.Limits[corev1.ResourceName(name)] = resource.MustParse(limit)
		}
	}
	return r
}

func node(t *testing.T, f []string) qos.Node {
	t.Helper()
	n := qos.Node{PageSize: 4096}
	for _, word := range f {
		key, value, _ := strings.Cut(word, "=")
		bytes := func() int64 {
			q, err := resource.ParseQuantity(value)
			require.NoError(t, err, word)
			return q.Value()
		}
		switch key {
		case "memory":
			n.MemoryCapacity = bytes()
		case "allocatable":
			n.MemoryAllocatable = bytes()
		case "swap":
			n.SwapCapacity = bytes()
		case "behaviour":
			n.Swap = qos.SwapBehavior(value)
		case "policy":
			n.Reservation = qos.ReservationPolicy(value)
		case "factor":
			factor, err := strconv.ParseFloat(value, 64)
			require.NoError(t, err, word)
			n.ThrottlingFactor = &factor
		case "v1":
			n.CgroupV1 = true
		case "no-swap-controller":
			n.NoSwapController = true
		case "single-process-oom-kill":
			n.SingleProcessOOMKill = new(value == "true")
		default:
			require.Fail(t, "unknown word", word)
		}
	}
	return n
}
