// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/apis/config"
	versioned "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

// configDifferences has the intended differences. Each must occur in the test.
var configDifferences = map[string]string{
	"strict decoding":      "unknown, misspelled and duplicate fields are errors; the kubelet warns and ignores them",
	"unsupported value":    "fields in state DefaultOnly accept their default only",
	"unsupported gate":     "gates in state DefaultOnly accept their default only",
	"image service":        "imageServiceEndpoint must be that of containerRuntimeEndpoint",
	"checked at start":     "address, clusterDNS and authorization.mode are checked with the file; the kubelet fails, or misbehaves, when it starts",
	"server certificates":  "tlsCertFile needs tlsPrivateKeyFile, and excludes serverTLSBootstrap",
	"shutdown seconds":     "periods of a shutdown are whole seconds, and not negative",
	"parallel image pulls": "images are pulled in parallel by default, so that maxParallelImagePulls does not need serializeImagePulls: false",
	"no cgroups":           "cgroupsPerQOS: false does not need enforceNodeAllocatable, which follows it",
	"default thresholds":   "mergeDefaultEvictionSettings also counts in drop-ins",
	"hidden error":         "a wrong type in a drop-in is an error although a later drop-in replaces the value",
}

// configTrial is one comparison of both sides.
type configTrial struct {
	files   configFiles
	kubelet configResult
	ours    configResult
	used    map[string]bool // differences
}

// TestKubeletConfigurationFiles compares decoding, defaults, merging and validation of generated files with the kubelet's functions.
func TestKubeletConfigurationFiles(t *testing.T) {
	host(true) // the kubelet refuses cgroup v1
	limit := flags.AtMost(100_000)
	generator, seed, scratch := newConfigGenerator(), flags.Seed(), t.TempDir()
	var count configCount
	var workers sync.WaitGroup
	step := runtime.GOMAXPROCS(0)
	for first := range step {
		workers.Go(func() {
			dir := filepath.Join(scratch, fmt.Sprint(first))
			for i := first; i < limit.Inputs() && count.failures.Load() < 10; i += step {
				files := generator.generate(rand.New(rand.NewPCG(seed, uint64(i))))
				trial, err := tryConfig(t, dir, files)
				if err == nil {
					err = trial.compare()
				}
				if err != nil {
					count.failures.Add(1)
					t.Errorf("seed %d, input %d: %v\n%s\nkubelet: %v\nours: %v", seed, i, err, files, trial.kubelet.refused, trial.ours.refused)
				}
				count.add(trial)
			}
		})
	}
	workers.Wait()
	t.Logf("seed %d: %d accepted, %d refused", seed, count.accepted, count.refused)
	for _, name := range slices.Sorted(maps.Keys(configDifferences)) {
		t.Logf("%7d times: %s: %s", count.used[name], name, configDifferences[name])
		if limit.Inputs() >= 100_000 {
			assert.NotZero(t, count.used[name], "the difference %q does not occur any more", name)
		}
	}
}

// configCount counts the results of trials.
type configCount struct {
	failures atomic.Int64

	mu                sync.Mutex // guards the fields below
	accepted, refused int
	used              map[string]int // by name of the difference
}

func (c *configCount) add(trial *configTrial) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(trial.ours.refused) > 0 {
		c.refused++
	} else {
		c.accepted++
	}
	if c.used == nil {
		c.used = map[string]int{}
	}
	for name, isUsed := range trial.used {
		if isUsed {
			c.used[name]++
		}
	}
}

// tryConfig runs both sides on files.
func tryConfig(t *testing.T, dir string, files configFiles) (trial *configTrial, err error) {
	trial = &configTrial{files: files, used: map[string]bool{}}
	if err := os.RemoveAll(dir); err != nil {
		return trial, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return trial, err
	}
	path, dropIns, err := files.write(dir)
	if err != nil {
		return trial, err
	}
	kc, errs := kubeletSide(t.Context(), path, dropIns)
	trial.kubelet = trial.kubeletResult(kc, errs)
	trial.ours = ourResult(path, dropIns)
	return trial, nil
}

// kubeletResult returns the result of the kubelet with the intended differences applied.
func (c *configTrial) kubeletResult(kc *config.KubeletConfiguration, errs []error) configResult {
	r := configResult{refused: map[string]string{}}
	for _, err := range errs {
		switch text := err.Error(); {
		case strings.Contains(text, "unless SerializeImagePulls") && !c.files.setsSerialPulls():
			c.used["parallel image pulls"] = true
		case strings.Contains(text, "must be set to true when"):
			c.used["no cgroups"] = true
		default:
			r.refused[refusedField(err)] = text
		}
	}
	for field, difference := range c.files.refused {
		c.used[difference] = true
		r.refused[field] = difference
	}
	if kc == nil {
		return r
	}
	r.loaded, r.fields = true, kubeletFields(kc)
	for field, difference := range differingFields(kc, r.fields, strings.Contains(c.files.effective(), "containerRuntimeEndpoint: unix")) {
		if _, ok := r.refused[field]; !ok {
			c.used[difference] = true
			r.refused[field] = difference
		}
	}
	return r
}

// differingFields returns the fields of a configuration that only nodeagent refuses, with the name of the difference.
func differingFields(kc *config.KubeletConfiguration, fields map[string]any, endpointSet bool) map[string]string {
	differing := map[string]string{}
	for name := range unsupportedValues(fields) {
		differing[name] = "unsupported value"
	}
	if unsupportedGate(kc.FeatureGates) {
		differing["featureGates"] = "unsupported gate"
	}
	if kc.ImageServiceEndpoint != "" && (kc.ImageServiceEndpoint != kc.ContainerRuntimeEndpoint || !endpointSet) {
		differing["imageServiceEndpoint"] = "image service"
	}
	if enforced := kc.EnforceNodeAllocatable; kc.CgroupsPerQOS && !slices.Equal(enforced, []string{"pods"}) {
		differing["enforceNodeAllocatable"] = "unsupported value"
	}
	if kc.Address == "localhost" {
		differing["address"] = "checked at start"
	}
	if slices.Contains(kc.ClusterDNS, "nope") {
		differing["clusterDNS"] = "checked at start"
	}
	if kc.Authorization.Mode == "RBAC" {
		differing["authorization"] = "checked at start"
	}
	if (kc.TLSCertFile == "") != (kc.TLSPrivateKeyFile == "") {
		differing["tlsCertFile"] = "server certificates"
	}
	if kc.ServerTLSBootstrap && kc.TLSCertFile != "" {
		differing["serverTLSBootstrap"] = "server certificates"
	}
	for _, d := range []int64{int64(kc.ShutdownGracePeriod.Duration), int64(kc.ShutdownGracePeriodCriticalPods.Duration)} {
		if d%1e9 != 0 {
			differing["shutdownGracePeriod"] = "shutdown seconds"
		}
	}
	for _, p := range kc.ShutdownGracePeriodByPodPriority {
		if p.ShutdownGracePeriodSeconds < 0 {
			differing["shutdownGracePeriodByPodPriority"] = "shutdown seconds"
		}
	}
	return differing
}

var defaultFields = func() map[string]any {
	c := &v1beta1.KubeletConfiguration{}
	versioned.SetDefaults_KubeletConfiguration(c)
	return jsonObject(c)
}()

// unsupportedValues returns the fields in state DefaultOnly whose value is neither the default of the kubelet nor accepted.
func unsupportedValues(fields map[string]any) map[string]bool {
	names := map[string]bool{}
	for _, f := range allFields {
		if f.State != kubeletconfig.DefaultOnly {
			continue
		}
		if f.Name == "enforceNodeAllocatable" && fields[f.Name] == nil { // empty: checked with cgroupsPerQOS
			continue
		}
		path := strings.Split(strings.ReplaceAll(f.Name, "[]", ""), ".")
		value := lookUp(fields, path)
		accepted := reflect.DeepEqual(value, lookUp(defaultFields, path)) || slices.ContainsFunc(f.Accept, func(text string) bool {
			return reflect.DeepEqual(value, jsonObject(rawObject(text))["v"])
		})
		if !accepted {
			names[path[0]] = true
		}
	}
	return names
}

func lookUp(value any, path []string) any {
	for _, name := range path {
		inner, _ := value.(map[string]any)
		value = inner[name]
	}
	switch v := value.(type) { // the type of the field decides whether an empty value is written
	case string:
		if v == "" || v == "0s" {
			return nil
		}
	case float64, bool:
		if reflect.ValueOf(v).IsZero() {
			return v
		}
	}
	return value
}

type rawObject string

func (o rawObject) MarshalJSON() ([]byte, error) { return []byte(`{"v":` + string(o) + `}`), nil }

var allFields = kubeletconfig.Fields()

// compare returns an error if the sides differ without an intended difference.
func (c *configTrial) compare() error {
	if (len(c.kubelet.refused) > 0) != (len(c.ours.refused) > 0) {
		if c.hidesError() {
			return nil
		}
		return fmt.Errorf("one side refuses the files")
	}
	if len(c.ours.refused) > 0 {
		return c.compareRefusals()
	}
	if reflect.DeepEqual(c.kubelet.fields["evictionHard"], nil) {
		c.kubelet.fields["evictionHard"] = map[string]any{}
	}
	for _, name := range configFieldNames {
		want, got := c.kubelet.fields[name], c.ours.fields[name]
		if name == "evictionHard" && got == nil {
			got = map[string]any{}
		}
		if reflect.DeepEqual(want, got) || c.mayDiffer(name, want, got) {
			continue
		}
		return fmt.Errorf("%s: kubelet %v, ours %v", name, want, got)
	}
	return nil
}

// compareRefusals returns an error if nodeagent does not name a field that the kubelet names. Decoding ends before validation, and with an error
// in one of several drop-ins: then an error that is found later may stay unnamed.
func (c *configTrial) compareRefusals() error {
	const reservedMemory = "reservedMemory"
	theirs, ours := c.kubelet.refused[reservedMemory], c.ours.refused[reservedMemory]
	if c.kubelet.loaded && c.ours.loaded && ours != "" && ours != reservedMemory+": "+theirs {
		return fmt.Errorf("%s: the kubelet's error is %q", ours, theirs)
	}
	named, missing := 0, ""
	for field, text := range c.kubelet.refused {
		if c.names(field, text) {
			named++
		} else {
			missing = field
		}
	}
	if named > 0 && (!c.ours.loaded || !c.kubelet.loaded) {
		return nil
	}
	if !c.ours.loaded && (!c.kubelet.loaded && len(c.files.dropIns) > 1 || c.hidesError()) {
		return nil
	}
	if missing != "" {
		return fmt.Errorf("only the kubelet names %s", missing)
	}
	return nil
}

// names reports whether an error of nodeagent is about a field that the kubelet refuses with an error text.
func (c *configTrial) names(field, text string) bool {
	for ours := range c.ours.refused {
		if strings.HasPrefix(field, "shutdownGracePeriod") && strings.HasPrefix(ours, "shutdownGracePeriod") {
			return true
		}
		if field == "" || ours == field || ours != "" && strings.Contains(strings.ToLower(text), strings.ToLower(ours)) {
			return true
		}
	}
	return false
}

// hidesError reports whether only nodeagent refuses the files, for the type of a value in a drop-in that does not count in the end.
func (c *configTrial) hidesError() bool {
	for _, text := range c.ours.refused {
		if !strings.Contains(text, " is no ") && !strings.Contains(text, "invalid duration") && !strings.Contains(text, "unknown unit") && !strings.Contains(text, "missing unit") {
			return false
		}
	}
	hides := len(c.files.dropIns) > 1 && c.kubelet.loaded
	c.used["hidden error"] = c.used["hidden error"] || hides
	return hides
}

// mayDiffer reports whether a field differs for a reason of configDifferences or of TestKubeletConfigurationHasTheDefaultsOfTheKubelet.
func (c *configTrial) mayDiffer(name string, want, got any) bool {
	switch name {
	case "serializeImagePulls", "maxParallelImagePulls":
		c.used["parallel image pulls"] = true
		return want == nil || name == "serializeImagePulls" && !c.files.setsSerialPulls()
	case "containerRuntimeEndpoint":
		return got == nil && want == "unix:///run/containerd/containerd.sock"
	case "cgroupRoot":
		return want == nil && got == "/"
	case "enableSystemLogQuery":
		return cmp.Or(want, any(false)) == got
	case "failCgroupV1": // cgroup v1 is supported
		return want == true && got == false && !strings.Contains(c.files.effective(), "failCgroupV1: true")
	case "evictionHard":
		if strings.Contains(c.files.effective(), "mergeDefaultEvictionSettings: true") && len(c.files.dropIns) > 0 {
			c.used["default thresholds"] = true
			return true
		}
	case "kind", "apiVersion":
		return true
	}
	return isEmptyJSON(want) && isEmptyJSON(got)
}

// TestKubeletConfigurationGates compares the table of gates with the registry of the kubelet.
func TestKubeletConfigurationGates(t *testing.T) {
	require.NotEmpty(t, allGates)
	checkGates(t)
}
