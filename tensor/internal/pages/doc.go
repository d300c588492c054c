// Package pages asks the operating system for large pages if there is a way to.
package pages
