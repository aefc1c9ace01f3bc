// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package safeyaml_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/internal/hostile"
	"github.com/seed81659283/nodeagent/internal/safeyaml"
)

// JSON refuses a document by its decoded size: a list of half a million empty containers is a megabyte of text and a
// gigabyte of structs.
func TestJSONRefusesDocumentsAboveLimits(t *testing.T) {
	long := strings.Repeat("x", safeyaml.MaxKey+1)
	for text, want := range map[string]string{
		`{"a":{"b.c":[0,` + strings.Repeat("{},", safeyaml.MaxList) + `{}]}}`: "a[b.c]: a list of more than 1000 elements",
		`{"a":{"` + long + `":1}}`: "a: a key of 1025 bytes, the limit is 1024",
		`{"a":` + strings.Repeat("[", safeyaml.MaxDepth) + "1" + strings.Repeat("]", safeyaml.MaxDepth) + "}": "more than 100 lists and objects within each other",
		`{"a":"` + strings.Repeat("x", safeyaml.MaxString) + `"}`:                                             "a: a string of 2097154 bytes, the limit is 2097152",
		`{"a":[1,` + strings.Repeat("1", safeyaml.MaxNumber+1) + `]}`:                                         "a[1]: a number of 1025 bytes, the limit is 1024",
		`{"a":`:   "unexpected end of JSON input",
		`{"a"::}`: "invalid character ':'",
	} {
		assert.ErrorContains(t, safeyaml.NewBudget(len(text)).JSON([]byte(text)), want)
	}
	err := safeyaml.NewBudget(0).JSON([]byte(`{"":[1,2,{"a\"}":"]","b":-1.5e3,"c":null}],"d":[],"e":{}}  `))
	assert.NoError(t, err)
	deep := strings.Repeat("[", safeyaml.MaxDepth)
	err = safeyaml.NewBudget(0).JSON([]byte(deep + strings.ReplaceAll(deep, "[", "]")))
	assert.NoError(t, err)
	err = safeyaml.NewBudget(0).JSON([]byte("[" + deep + strings.ReplaceAll(deep, "[", "]") + "]"))
	e, ok := errors.AsType[*safeyaml.Error](err)
	require.True(t, ok)
	assert.Equal(t, strings.Repeat("[0]", 100), e.Path)
}

// A quantity of ten characters can take 19 s to parse and compare. Quantities refuses it in fields of type Quantity, and
// accepts the same text in other fields.
func TestQuantitiesRefusesExpensiveNumbers(t *testing.T) {
	pod := reflect.TypeFor[corev1.Pod]()
	for _, c := range []struct{ raw, want string }{
		{`{"spec":{"containers":[{},{"resources":{"limits":{"cpu":"1e101"}}}]}}`, `spec.containers[1].resources.limits.cpu: quantity "1e101": the exponent must be between -100 and 100`},
		{`{"spec":{"containers":[{"resources":{"limits":{"example.com/a":1E-101}}}]}}`, `spec.containers[0].resources.limits[example.com/a]: quantity "1E-101": the exponent must`},
		{`{"spec":{"overhead":{"cpu":" +1e99999999999999999999\n"}}}`, `spec.overhead.cpu: quantity "+1e99999999999999999999": the exponent must`},
		{`{"spec":{"overhead":{"cpu":"` + strings.Repeat("1", 65) + `"}}}`, `spec.overhead.cpu: quantity "` + strings.Repeat("1", 32) + `"...: 65 characters, the limit is 64`},
		{`{"SPEC":{"OverHead":{"cpu":"1e101"}}}`, `SPEC.OverHead.cpu: quantity "1e101"`},
		{`{"\u0073pec":{"overhead":{"cpu":"1\u0065101"}}}`, `spec.overhead.cpu: quantity "1e101"`},
		{`{"\u017fpec":{"overhead":{"cpu":"1e101"}}}`, `pec.overhead.cpu: quantity "1e101"`},
		{`{"spec":{"ephemeralContainers":[{"resources":{"limits":{"cpu":"1e101"}}}]}}`, "spec.ephemeralContainers[0].resources"},
		{`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1e101"}}]}}`, "spec.volumes[0].emptyDir.sizeLimit"},
		{`{"spec":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":"1e101"}}}]}]}}`, "divisor"},
		{`{"spec":{"overhead":{"cpu":"1e100"}}}`, ""},
		{`{"spec":{"overhead":{"cpu":"1E"}}}`, ""},
		{`{"spec":{"overhead":{"cpu":"100e"}}}`, ""},
		{`{"spec":{"overhead":{"cpu":"100e5Ki"}}}`, ""},
		{`{"spec":{"containers":[{"env":[{"value":"1e30000000"}]}]}}`, ""},
		{`{"metadata":{"annotations":{"cpu":"1e30000000"}},"unknown":{"cpu":"1e101"}}`, ""},
		{`{"spec":{"overhead":["1e101"],"nodeName":{"cpu":"1e101"},"priority":1e101}}`, ""},
		{`{"spec":`, ""},
		{`1e101`, ""},
	} {
		err := safeyaml.Quantities([]byte(c.raw), pod)
		if c.want == "" {
			assert.NoError(t, err, c.raw)
			continue
		}
		assert.ErrorContains(t, err, c.want, c.raw)
	}
}

// Accepted quantities are decoded, compared and printed in little time.
func FuzzQuantities(f *testing.F) {
	for _, q := range []string{"1e30000000", " 1e-101", "-.5e+100", "1\\u0065300000", strings.Repeat("9", 70), "0.000e99", "1Ei", "1e18e9"} {
		f.Add(`{"spec":{"overhead":{"cpu":"` + q + `"}}}`)
		f.Add(`{"SPEC":{"resources":{"limits":{"cpu":` + q + `}}}}`)
	}
	most := resource.MustParse("1e100")
	f.Fuzz(func(t *testing.T, raw string) {
		costtest.Check(t, costtest.Limit{Time: 200 * time.Millisecond}, func() {
			var pod corev1.Pod
			if len(raw) > 10_000 || safeyaml.Quantities([]byte(raw), reflect.TypeFor[corev1.Pod]()) != nil || json.Unmarshal([]byte(raw), &pod) != nil {
				return
			}
			for _, q := range pod.Spec.Overhead {
				_, _, _ = q.Cmp(most), q.String(), q.MilliValue()
			}
		})
	})
}

// The memory for the check of a document is limited.
func TestJSONTakesLimitedMemory(t *testing.T) {
	for _, m := range hostile.All(1 << 20) {
		costtest.Check(t, costtest.Limit{Bytes: 16 << 20}, func() {
			_ = safeyaml.NewBudget(len(m.Text)).JSON(m.Text)
			_ = safeyaml.Quantities(m.Text, reflect.TypeFor[corev1.Pod]())
		})
	}
}
