// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package required checks the required arguments of constructors in one way for all packages. A constructor with an error result
// returns the error of Args; others call MustArgs, which panics with the same text.
package required

import (
	"fmt"
	"reflect"
)

// Arg is a required argument of a constructor.
type Arg struct {
	Name  string // parameter name
	Value any
	Hint  string // example of a valid value, such as "a *remote.Client"
}

// Args returns an error that names constructor and the first of its arguments that is nil. A nil pointer in an interface
// counts as nil too: a caller passes it by mistake when its variable is not set.
func Args(constructor string, args ...Arg) error {
	for _, a := range args {
		if isNil(a.Value) {
			return fmt.Errorf("%s: argument %s is nil: required, such as %s", constructor, a.Name, a.Hint)
		}
	}
	return nil
}

// MustArgs panics with the error of [Args] if a value is nil.
func MustArgs(constructor string, args ...Arg) {
	if err := Args(constructor, args...); err != nil {
		panic(err.Error())
	}
}

// isNil reports whether value is nil, or contains a nil pointer, func or map.
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
