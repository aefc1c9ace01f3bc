// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package required checks the arguments that a constructor cannot do without, in one way for all packages: a constructor that returns
// an error returns that of Args, and one that cannot calls MustArgs, which panics with the same text.
package required

import (
	"fmt"
	"reflect"
)

// Arg is an argument of a constructor.
type Arg struct {
	Name  string // of the parameter
	Value any
	Hint  string // a value that serves, such as "a *remote.Client"
}

// Args returns an error that names the first argument that is nil, also where an interface holds a nil pointer, which a program with a
// variable that it has not set yet hands over.
func Args(constructor string, args ...Arg) error {
	for _, a := range args {
		if isNil(a.Value) {
			return fmt.Errorf("%s: argument %s is nil: required, such as %s", constructor, a.Name, a.Hint)
		}
	}
	return nil
}

// MustArgs panics with the error of [Args].
func MustArgs(constructor string, args ...Arg) {
	if err := Args(constructor, args...); err != nil {
		panic(err.Error())
	}
}

// isNil reports whether a value is nil, or holds a nil pointer or func.
func isNil(value any) bool {
	if value == nil {
		return true
	}
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map:
		return v.IsNil()
	default:
		return false
	}
}
