// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package required_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/required"
)

// Args reports an argument that is nil, and a nil pointer in an interface, which does not equal nil.
func TestArgs(t *testing.T) {
	var pointer *time.Location
	var function func()
	for _, value := range []any{nil, fmt.Stringer(nil), pointer, fmt.Stringer(pointer), function} {
		args := []required.Arg{{Name: "clock", Value: time.UTC}, {Name: "zone", Value: value, Hint: "a *time.Location"}}
		err := required.Args("house.New", args...)
		require.EqualError(t, err, "house.New: argument zone is nil: required, such as a *time.Location", "%T", value)
		require.PanicsWithValue(t, err.Error(), func() { required.MustArgs("house.New", args...) })
	}
	for _, value := range []any{time.UTC, "", 0, struct{}{}, func() {}} {
		require.NoError(t, required.Args("house.New", required.Arg{Name: "zone", Value: value}))
		require.NotPanics(t, func() { required.MustArgs("house.New", required.Arg{Name: "zone", Value: value}) })
	}
}
