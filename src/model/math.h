/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar functions of the forward pass, made of the same steps on every machine (libm differs from
 * one to the next). Array forms of exp and tanh are in kernels/vec.h. */
#ifndef CSN_MODEL_MATH_H
#define CSN_MODEL_MATH_H

/* Sine and cosine of an angle in radians, |angle| < 2^20, within 0.501 ulp of f32. Outside that
 * range, or for what is not a number, both are 0. */
void csn_sincos(float angle, float *ret_sin, float *ret_cos);

/* base^exponent for base > 0, finite results; within 2^-48 relative. */
double csn_f64_pow(double base, double exponent);
double csn_f64_log(double x); /* x > 0, normal */
double csn_f64_exp(double x); /* |x| < 700 */

float csn_sigmoid(float x); /* what is not a number gives 0 */

#endif
