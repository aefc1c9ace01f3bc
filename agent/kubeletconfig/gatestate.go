// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The gates that set all gates of a stage.
const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// gateOfStage returns AllAlpha or AllBeta, the gate that sets all gates of this stage. It returns "" for GA and deprecated gates.
func gateOfStage(stage string) string {
	switch stage {
	case "alpha":
		return allAlpha
	case "beta":
		return allBeta
	}
	return ""
}

// Gate is a feature gate of the kubelet.
type Gate struct {
	Name     string   // such as GracefulNodeShutdown
	Stage    string   // alpha, beta, GA or deprecated
	Default  bool     // value if the gate is not set
	Locked   bool     // the kubelet refuses a value other than Default
	State    State    // Supported: true and the default are accepted; AllAlpha and AllBeta follow the gates that they set
	Requires []string // gates that must be on where this gate is on
}

// Gates returns all feature gates that the kubelet of Kubernetes 1.37 knows, sorted by name. Source: pkg/features/kube_features.go.
func Gates() []Gate {
	states := map[string]State{"supported": Supported, "default": DefaultOnly, "none": NoEffect}
	var all []Gate
	for line := range strings.Lines(strings.TrimSpace(gateTable)) {
		cells := strings.Fields(line)
		all = append(all, Gate{
			Name: cells[0], Stage: cells[1], Default: cells[2] == "on", Locked: cells[3] == "locked", State: states[cells[4]], Requires: cells[5:],
		})
	}
	return all
}

// gateErrors returns an error for each gate in set that the kubelet refuses. If the kubelet accepts all, it returns an error for each value that this
// module does not support.
func gateErrors(set map[string]bool) []error {
	if errs := invalidGates(set); len(errs) > 0 || len(set) == 0 {
		return errs
	}
	var errs []error
	unsupported := map[string][]string{} // gates that AllAlpha or AllBeta sets
	for _, g := range Gates() {
		on := isGateOn(g, set)
		if isSupported(g, on) {
			continue
		}
		if _, direct := set[g.Name]; direct {
			errs = append(errs, fmt.Errorf("featureGates: %s: %t is not supported by this version, want %t", g.Name, on, g.Default))
		} else {
			all := gateOfStage(g.Stage)
			unsupported[all] = append(unsupported[all], g.Name)
		}
	}
	for _, all := range slices.Sorted(maps.Keys(unsupported)) {
		errs = append(errs, fmt.Errorf("featureGates: %s: %t is not supported by this version for %s", all, set[all], strings.Join(unsupported[all], ", ")))
	}
	return errs
}

// invalidGates returns the kubelet's error for each unknown or locked gate in set. If there is none, it returns the error for the first gate that
// requires a gate which is off. Source: k8s.io/component-base/featuregate/feature_gate.go.
func invalidGates(set map[string]bool) (errs []error) {
	if len(set) == 0 {
		return nil
	}
	known := map[string]Gate{}
	gates := Gates()
	for _, g := range gates {
		known[g.Name] = g
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		switch g, ok := known[name]; {
		case !ok:
			errs = append(errs, fmt.Errorf("featureGates: unrecognized feature gate: %s", name))
		case g.Locked && set[name] != g.Default:
			errs = append(errs, fmt.Errorf("featureGates: cannot set feature gate %s to %t, feature is locked to %t", name, set[name], g.Default))
		}
	}
	for _, g := range gates {
		if len(errs) == 0 && isGateOn(g, set) {
			errs = append(errs, dependencyErrors(g, known, set)...)
		}
	}
	return errs
}

// isSupported reports whether this module accepts the value on for gate g.
func isSupported(g Gate, on bool) bool {
	return g.Name == allAlpha || g.Name == allBeta || on == g.Default || g.State == NoEffect || g.State == Supported && on
}

// findGate returns the gate with this name, which must exist.
func findGate(name string) Gate {
	gates := Gates()
	return gates[slices.IndexFunc(gates, func(g Gate) bool { return g.Name == name })]
}

// isGateOn reports whether gate g is on. Its value in set takes precedence over AllAlpha or AllBeta in set, and these over the default.
func isGateOn(g Gate, set map[string]bool) bool {
	if on, ok := set[g.Name]; ok {
		return on
	}
	if on, ok := set[gateOfStage(g.Stage)]; ok && !g.Locked && g.Name != allAlpha && g.Name != allBeta {
		return on
	}
	return g.Default
}

// dependencyErrors returns one error with all gates that g requires and that are off. The caller has checked that g is on. known has all gates by
// name.
func dependencyErrors(g Gate, known map[string]Gate, set map[string]bool) []error {
	var off []string
	for _, name := range g.Requires {
		if !isGateOn(known[name], set) {
			off = append(off, name)
		}
	}
	if len(off) == 0 {
		return nil
	}
	return []error{fmt.Errorf("featureGates: %s is enabled, but depends on features that are disabled: %s", g.Name, strings.Join(off, ", "))}
}
