// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fielderr_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
)

// An error does not repeat a value, list or key of a megabyte.
func TestShortTruncatesValues(t *testing.T) {
	huge, path := strings.Repeat("x", 1<<20), field.NewPath("spec")
	for _, test := range []struct {
		err  *field.Error
		want string
	}{
		{field.Invalid(path, "a", "b"), `spec: Invalid value: "a": b`},
		{field.Invalid(path, huge, "b"), `spec: Invalid value: "` + huge[:256] + `... (1048576 bytes)": b`},
		{field.Invalid(path, []string{"a", huge}, "b"), `spec: Invalid value: "a list of 2": b`},
		{field.Invalid(path, make([]int, 300), "b"), `spec: Invalid value: "a list of 300": b`},
		{field.Invalid(path, []string{"a"}, "b"), `spec: Invalid value: ["a"]: b`},
		{field.Forbidden(path.Key(huge), "b"), "spec[" + huge[:1019] + "... (1048582 bytes): Forbidden: b"},
		{field.Forbidden(path, huge), "spec: Forbidden: " + huge[:1024] + "... (1048576 bytes)"},
		{fielderr.TooLong(path, "at most %d", 5), "spec: Too long: at most 5"},
	} {
		assert.EqualError(t, fielderr.Short(field.ErrorList{test.err})[0], test.want)
	}
}

func TestShortReturnsFirstErrors(t *testing.T) {
	errs := make(field.ErrorList, 0, 1000)
	for i := range cap(errs) {
		errs = append(errs, field.Required(field.NewPath("spec").Index(i), ""))
	}
	got := fielderr.Short(errs)
	assert.Len(t, got, fielderr.MaxErrors+1)
	assert.EqualError(t, got[fielderr.MaxErrors], "pod: Forbidden: more than 100 errors, of which the first are reported")
	assert.Len(t, fielderr.Short(errs[:fielderr.MaxErrors]), fielderr.MaxErrors)
	assert.Empty(t, fielderr.Short(nil))
}

func TestShortOneKeepsWrappedErrors(t *testing.T) {
	huge := strings.Repeat("x", 300)
	assert.EqualError(t, fielderr.ShortOne(field.Invalid(field.NewPath("a"), huge, "")), `a: Invalid value: "`+huge[:256]+`... (300 bytes)"`)
	wrapped := fmt.Errorf("b: %w", field.Invalid(field.NewPath("a"), huge, ""))
	assert.Contains(t, fielderr.ShortOne(wrapped).Error(), huge, "ShortOne does not shorten a wrapped error")
	assert.NoError(t, fielderr.ShortOne(nil))
	assert.EqualError(t, fielderr.ShortOne(errors.New("a")), "a")
}

func TestQuote(t *testing.T) {
	assert.Equal(t, `"a\"b"`, fielderr.Quote(`a"b`))
	assert.Equal(t, `"`+strings.Repeat("x", 256)+`... (257 bytes)"`, fielderr.Quote(strings.Repeat("x", 257)))
}
