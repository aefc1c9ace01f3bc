// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects

// Error is the error of reading one object, or of listing all services of a namespace.
type Error struct {
	Kind      string // such as "config map", "secret", "service" or "persistent volume claim"
	Namespace string // empty: cluster-scoped object
	Name      string // empty: the error is about all services of the namespace
	File      string // empty: the object is not from a file
	Err       error
}

// Error returns "read kind namespace/name from file: cause".
func (e *Error) Error() string {
	s := "read " + e.Kind + " " + e.Namespace + "/" + e.Name
	switch {
	case e.Name == "":
		s = "list " + e.Kind + "s of namespace " + e.Namespace
	case e.Namespace == "":
		s = "read " + e.Kind + " " + e.Name
	}
	if e.File != "" {
		s += " from " + e.File
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause, which is fs.ErrNotExist for a missing object.
func (e *Error) Unwrap() error { return e.Err }
