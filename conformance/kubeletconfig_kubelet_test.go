// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	_ "unsafe" // for go:linkname

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubelet/config/v1beta1"
	_ "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/pkg/kubelet/apis/config"
	versioned "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/eviction"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

//go:linkname loadKubeletConfig k8s.io/kubernetes/cmd/kubelet/app.loadConfigFile
func loadKubeletConfig(ctx context.Context, name string) (*config.KubeletConfiguration, error)

//go:linkname mergeKubeletConfigs k8s.io/kubernetes/cmd/kubelet/app.mergeKubeletConfigurations
func mergeKubeletConfigs(c *config.KubeletConfiguration, dir string) ([]string, error)

//go:linkname parseKubeletReserved k8s.io/kubernetes/cmd/kubelet/app.parseResourceList
func parseKubeletReserved(m map[string]string) (corev1.ResourceList, error)

// configResult is the result of a side for configuration files: refused fields with the errors, or the fields of the configuration.
type configResult struct {
	refused map[string]string // by field at the top level, or "" for an error without field
	fields  map[string]any
	loaded  bool // no error before the validation
}

// kubeletSide loads, merges, defaults and validates configuration files as the kubelet does, and makes the checks of its start that concern
// values of the configuration.
func kubeletSide(ctx context.Context, path, dropIns string) (kc *config.KubeletConfiguration, errs []error) {
	defer func() {
		if cause := recover(); cause != nil { // the defaults panic on unknown gates
			errs = []error{fmt.Errorf("%v", cause)}
		}
	}()
	kc, err := loadKubeletConfig(ctx, path)
	if err == nil && dropIns != "" {
		_, err = mergeKubeletConfigs(kc, dropIns)
	}
	if err != nil {
		return nil, []error{err}
	}
	if err := validation.ValidateKubeletConfiguration(kc, utilfeature.DefaultFeatureGate); err != nil {
		all, ok := errors.AsType[utilerrors.Aggregate](err)
		if !ok {
			return nil, []error{err}
		}
		errs = slices.Clone(all.Errors())
	}
	named := func(field string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
	}
	_, err = parseKubeletReserved(kc.SystemReserved)
	named("systemReserved", err)
	_, err = parseKubeletReserved(kc.KubeReserved)
	named("kubeReserved", err)
	_, err = eviction.ParseThresholdConfig(kc.EnforceNodeAllocatable, kc.EvictionHard, kc.EvictionSoft, kc.EvictionSoftGracePeriod, kc.EvictionMinimumReclaim)
	named("eviction", err)
	_, err = resource.ParseQuantity(kc.ContainerLogMaxSize)
	named("containerLogMaxSize", err)
	return kc, errs
}

// topLevelNames has the fields of a KubeletConfiguration, the longest first.
var topLevelNames = func() []string {
	all := map[string]bool{}
	for _, f := range kubeletconfig.Fields() {
		name, _, _ := strings.Cut(f.Name, ".")
		all[strings.TrimSuffix(name, "[]")] = true
	}
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	return names
}()

var (
	fieldName    = regexp.MustCompile(`(?i)\b(` + strings.Join(topLevelNames, "|") + `)\b`)
	decodedField = regexp.MustCompile(`KubeletConfiguration\.([A-Za-z0-9]+)`)
	gateError    = regexp.MustCompile(`unrecognized feature gate|cannot set feature gate|depends on features`)
)

// refusedField returns the field that an error of the kubelet is about, or "" if the error does not name it.
func refusedField(err error) string {
	text := err.Error()
	if decoded := decodedField.FindStringSubmatch(text); decoded != nil {
		return decoded[1]
	}
	if gateError.MatchString(text) {
		return "featureGates"
	}
	for part, field := range map[string]string{
		"pod logs path": "podLogsDir", "invalid taint": "registerWithTaints", "taint.TimeAdded": "registerWithTaints", "for NUMA node": "reservedMemory",
	} {
		if strings.Contains(text, part) {
			return field
		}
	}
	if strings.HasPrefix(text, "invalid configuration: ") || !strings.HasPrefix(text, "failed") && !strings.HasPrefix(text, "eviction:") {
		found := fieldName.FindString(strings.TrimPrefix(text, "invalid configuration: "))
		for _, name := range topLevelNames {
			if strings.EqualFold(name, found) {
				return name
			}
		}
	}
	return ""
}

// kubeletFields returns the fields of a configuration in the JSON of the kubelet's version.
func kubeletFields(kc *config.KubeletConfiguration) map[string]any {
	out := &v1beta1.KubeletConfiguration{}
	if err := versioned.Convert_config_KubeletConfiguration_To_v1beta1_KubeletConfiguration(kc, out, nil); err != nil {
		panic(err)
	}
	return jsonObject(out)
}

func jsonObject(from any) map[string]any {
	text, err := json.Marshal(from)
	if err != nil {
		panic(err)
	}
	all := map[string]any{}
	if err := json.Unmarshal(text, &all); err != nil {
		panic(err)
	}
	return all
}

// unsupportedGate reports whether the gates of a configuration include one that nodeagent refuses.
func unsupportedGate(gates map[string]bool) bool {
	local := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if len(gates) == 0 || local.SetFromMap(gates) != nil {
		return false
	}
	return slices.ContainsFunc(allGates, func(g kubeletconfig.Gate) bool {
		on := local.Enabled(featuregate.Feature(g.Name))
		if g.Name == "QOSReserved" && !gates["AllAlpha"] && !gates[g.Name] { // set for all tests of this package
			return false
		}
		if g.Name == "AllAlpha" || g.Name == "AllBeta" || on == g.Default {
			return false
		}
		return g.State == kubeletconfig.DefaultOnly || g.State == kubeletconfig.Supported && !on
	})
}

var allGates = kubeletconfig.Gates()

// checkGates compares names, stages, defaults, locks and dependencies of all gates.
func checkGates(t *testing.T) {
	t.Helper()
	stages := map[string]string{"": "GA", "ALPHA": "alpha", "BETA": "beta", "DEPRECATED": "deprecated"}
	theirs, dependencies := utilfeature.DefaultMutableFeatureGate.GetAll(), utilfeature.DefaultMutableFeatureGate.Dependencies()
	want := map[string]kubeletconfig.Gate{}
	for name, spec := range theirs {
		g := kubeletconfig.Gate{Name: string(name), Stage: stages[string(spec.PreRelease)], Default: spec.Default, Locked: spec.LockToDefault, Requires: []string{}}
		for _, d := range dependencies[name] {
			g.Requires = append(g.Requires, string(d))
		}
		slices.Sort(g.Requires)
		want[g.Name] = g
	}
	got := map[string]kubeletconfig.Gate{}
	for _, g := range allGates {
		assert.NotEmpty(t, g.State, g.Name)
		g.State = ""
		slices.Sort(g.Requires)
		got[g.Name] = g
	}
	assert.Equal(t, want, got)
}
