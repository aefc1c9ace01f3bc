// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/conformance"
	ourevict "github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/qos"
)

func TestParseThreshold(t *testing.T)   { run(t, parseThreshold) }
func FuzzParseThreshold(f *testing.F)   { fuzz(f, parseThreshold) }
func TestParseQOSReserved(t *testing.T) { run(t, parseQOSReserved) }
func FuzzParseQOSReserved(f *testing.F) { fuzz(f, parseQOSReserved) }

// number returns a percentage or an amount as an operator may write it, valid or not.
func number(c *conformance.Choices) string {
	return conformance.Pick(c, "", "-", "+", "0", " ") + strconv.FormatInt(c.Int64()>>c.Int(64), 10) +
		conformance.Pick(c, "", ".5", ".05", "e1") + conformance.Pick(c, "%", "", "Mi", "G", "%%", " %", "m")
}

// parseReserve parses a hard eviction threshold, which reduces the node allocatable.
func parseReserve(text string) (podtree.EvictionReserve, error) {
	amount, err := ourevict.ParseAmount(text)
	reserve := podtree.EvictionReserve{Fraction: amount.Fraction}
	if amount.Absolute != 0 {
		reserve.Quantity = resource.MustParse(amount.String())
	}
	return reserve, err
}

var parseThreshold = conformance.Comparison[string, answer]{
	Make: number,
	Kubelet: func(text string) answer {
		list, err := eviction.ParseThresholdConfig(nil, map[string]string{"memory.available": text}, nil, nil, nil)
		if err != nil {
			return answer{Refused: true}
		}
		if len(list) == 0 {
			return answer{Text: "0"}
		}
		capacity := *resource.NewQuantity(16<<30, resource.BinarySI)
		return answer{Text: strconv.FormatInt(qos.Value(evictionapi.GetThresholdQuantity(list[0].Value, &capacity)), 10)}
	},
	Ours: func(text string) answer {
		reserve, err := parseReserve(text)
		if err != nil {
			return answer{Refused: true}
		}
		kept := podtree.Reserved{MemoryAvailable: reserve}.Reservation(corev1.ResourceList{"memory": *resource.NewQuantity(16<<30, resource.BinarySI)})
		return answer{Text: strconv.FormatInt(kept.Memory().Value(), 10)}
	},
}

var parseQOSReserved = conformance.Comparison[map[string]string, answer]{
	Make: func(c *conformance.Choices) map[string]string {
		m := map[string]string{}
		for range conformance.Pick(c, 1, 0, 2) {
			m[conformance.Pick(c, "memory", "memory", "cpu", "")] = number(c)
		}
		return m
	},
	Kubelet: func(m map[string]string) answer {
		percent, err := cm.ParseQOSReserved(m)
		if err != nil {
			return answer{Refused: true}
		}
		p, ok := (*percent)["memory"]
		return answer{Text: fmt.Sprint(p, ok)}
	},
	Ours: func(m map[string]string) answer {
		p, err := podtree.ParseQOSReserved(m)
		return textOrError(fmt.Sprint(deref(p), p != nil), err)
	},
	Exceptions: []conformance.Exception[map[string]string, answer]{{
		Name:   "percent signs",
		Reason: "at most one percent sign is valid; the kubelet accepts any number of them",
		When:   func(m map[string]string) bool { return strings.HasSuffix(m["memory"], "%%") },
		Want:   func(map[string]string, answer) answer { return answer{Refused: true} },
	}},
}
