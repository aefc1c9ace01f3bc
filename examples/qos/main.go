// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Qos prints the effect of the requests and limits in a manifest: the QoS class of each pod, the OOM score adjustment of its
// containers, and the values of the cgroup v2 files of pod and containers. It runs nothing:
//
//	qos -memory 16Gi web.yaml
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/qos"
)

func main() {
	memory := resource.QuantityValue{Quantity: resource.MustParse("16Gi")}
	flag.Var(&memory, "memory", "memory of the node, which scores depend on")
	flag.Parse()
	var err error
	for _, path := range flag.Args() {
		err = errors.Join(err, printPods(os.Stdout, path, qos.Node{MemoryCapacity: memory.Value()}))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "qos:", err)
		os.Exit(1)
	}
}

// printPods prints a table of the pods in a manifest and their containers.
func printPods(w io.Writer, path string, node qos.Node) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	pods, problems := source.Parse(text, source.Origin{Source: source.File, Location: path})
	for _, problem := range problems {
		err = errors.Join(err, problem)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "POD\tCONTAINER\tCLASS\toom_score_adj\tcpu.weight\tcpu.max\tmemory.max")
	for _, pod := range pods {
		name, class := pod.Namespace+"/"+pod.Name, qos.Class(pod)
		fmt.Fprintf(table, "%s\t-\t%s\t-\t%s\n", name, class, cgroupColumns(podtree.ForPod(pod, node)))
		for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			row, containerErr := containerColumns(pod, &c, node)
			err = errors.Join(err, containerErr)
			fmt.Fprintf(table, "%s\t%s\t-\t%s\n", name, c.Name, row)
		}
	}
	return cmp.Or(table.Flush(), err)
}

// containerColumns returns the table columns of a container: its OOM score adjustment and its cgroup values.
func containerColumns(pod *corev1.Pod, c *corev1.Container, node qos.Node) (string, error) {
	r, err := qos.ContainerResources(pod, c, node)
	return fmt.Sprintf("%d\t%s", r.OOMScoreAdj, cgroupColumns(cgroups.Resources{
		CPUShares: uint64(r.CPUShares), CPUQuota: r.CPUQuota, CPUPeriod: uint64(r.CPUPeriod), MemoryMax: &r.MemoryLimit,
	})), err
}

// cgroupColumns returns the table columns cpu.weight, cpu.max and memory.max.
func cgroupColumns(r cgroups.Resources) string {
	quota, memory := "max", "max"
	if r.CPUQuota > 0 {
		quota = fmt.Sprint(r.CPUQuota, " ", r.CPUPeriod)
	}
	if r.MemoryMax != nil && *r.MemoryMax > 0 {
		memory = fmt.Sprint(*r.MemoryMax)
	}
	return fmt.Sprintf("%d\t%s\t%s", cgroups.WeightFromShares(r.CPUShares, cgroups.WeightLogQuadratic), quota, memory)
}
